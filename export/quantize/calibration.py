"""Texts that activations are measured on.

The built-in ones are few and of many kinds (prose, dialogue, code, mathematics, tables, other
languages), enough for the range of activations. A routed expert that none of them reaches is
reported; a larger file, of the texts a model will see, reaches more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from edgekit.errors import UsageError

MAX_TEXTS = 1024
"""Texts of a file that are used: as many as NVIDIA calibrates Lightning on, and a bound."""

DEFAULT_TEXTS = (
    "The harbour was quiet before dawn. A single boat moved along the wall, its lamp swinging, "
    "and the gulls on the roof of the fish market watched it without interest.",
    "Water boils at 100 degrees Celsius at sea level. On a mountain of 3,000 metres the pressure "
    "is lower and it boils at about 90 degrees, so that potatoes take longer to cook.",
    "User: My laptop is slow after the update. What can I do?\nAssistant: First look at what is "
    "using memory. Open the task manager, sort by memory, and tell me the first three entries.",
    "def merge(a, b):\n    out = []\n    i = j = 0\n    while i < len(a) and j < len(b):\n"
    "        if a[i] <= b[j]:\n            out.append(a[i]); i += 1\n        else:\n"
    "            out.append(b[j]); j += 1\n    return out + a[i:] + b[j:]",
    "Let x be the price of one pen. Then 3x + 4 = 19, so 3x = 15 and x = 5. Check: 3 * 5 + 4 = 19.",
    "SELECT city, COUNT(*) AS visits FROM trips WHERE year = 2024 GROUP BY city ORDER BY visits "
    "DESC LIMIT 10;",
    "Der Zug nach Basel fährt heute von Gleis sieben ab. Bitte beachten Sie die geänderte "
    "Wagenreihung; der Speisewagen befindet sich am Ende des Zuges.",
    "La recette demande deux oeufs, cent grammes de farine et un peu de sel. Laissez reposer la "
    "pâte une heure avant de la cuire dans une poêle bien chaude.",
    "今日は朝から雨が降っていますが、午後には晴れる見込みです。出かける時は傘を忘れないでください。",
    "| name | mass (kg) | year |\n|---|---|---|\n| Vanguard | 1.47 | 1958 |\n| Hubble "
    "| 11110 | 1990 |",
    '{"name": "get_weather", "arguments": {"city": "Lisbon", "unit": "celsius", "days": 3}}',
    "Question: Which of these is a mammal? (a) trout (b) bat (c) newt (d) wren\nAnswer: (b). A bat "
    "gives birth to live young and feeds them milk.",
    '#include <stdio.h>\nint main(void) { for (int i = 1; i <= 10; i++) printf("%d\\n", i * i); '
    "return 0; }",
    "El contrato entra en vigor el día de la firma y tendrá una duración de dos años, prorrogable "
    "por acuerdo de ambas partes con un mes de antelación.",
    "She asked whether the letter had come. He said no, and then, after a while, that it had, but "
    "that he had not known how to give it to her.",
    "The derivative of sin(x) cos(x) is cos^2(x) - sin^2(x) = cos(2x), by the product rule.",
    "2024-03-11 08:14:02 WARN disk /dev/nvme0n1p2 91% full\n2024-03-11 08:14:05 INFO rotated 14 "
    "logs\n2024-03-11 08:15:00 ERROR upload failed: connection reset, retry in 30 s",
    "Once there was a tailor who owned nothing but a needle. With it he mended the king's cloak, "
    "and the king, who had never been cold again, gave him a house with a door of oak.",
)


def read_texts(path: Path | None) -> list[str]:
    """Calibration texts: the built-in ones, or the first `MAX_TEXTS` of a file.

    Args:
        path: JSON lines with a "text" each (`.jsonl`), or plain text, paragraphs apart by an
            empty line. It is read line by line, and no further than needed.

    Raises:
        UsageError: there is no such file, or nothing in it.
    """
    if path is None:
        return list(DEFAULT_TEXTS)
    try:
        with path.open(encoding="utf-8") as lines:
            found = _json_texts(lines) if path.suffix == ".jsonl" else _paragraphs(lines)
            texts = list(islice((text for text in found if text), MAX_TEXTS))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is no calibration file",
            cause=f"{type(error).__name__}: {error}",
            hint='a .jsonl file with one {"text": ...} a line, or paragraphs of plain text',
        ) from None
    if not texts:
        raise UsageError(f"{path} holds no text to calibrate on")
    return texts


def _json_texts(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.strip():
            yield str(json.loads(line)["text"])


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield "".join(paragraph).strip()
            paragraph = []
    yield "".join(paragraph).strip()
