"""Prose from permissively licensed Debian packages, cleaned to plain paragraphs.

    python -m edgekit.recipes.nano.corpus --packages DIR --out DIR

DIR holds the .deb files of the packages in PACKAGES (``apt-get download NAME``); they are
unpacked, never installed. The result is ``docs.txt`` and ``docs.heldout.txt``: one paragraph a
line, documents separated by an empty line, every HELDOUT_EVERY-th document held out.
"""

import argparse
import hashlib
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

PACKAGES = {
    "python3.11-doc": "usr/share/doc/python3.11/html",
    "postgresql-doc-15": "usr/share/doc/postgresql-doc-15/html",
    "sqlite3-doc": "usr/share/doc/sqlite3",
    "wordnet-base": "usr/share/wordnet",
}
HELDOUT_EVERY = 50

_BLOCKS = {"p", "li", "dd", "dt", "h1", "h2", "h3", "h4", "td", "th", "div", "section"}
_SKIP = {"script", "style", "pre", "nav", "head", "table", "form", "footer"}
_VOID = {"br", "img", "hr", "input", "link", "meta", "col", "area", "wbr"}


class _Paragraphs(HTMLParser):
    """Collects the prose blocks of one HTML page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._parts: list[str] = []
        self._skipping = 0

    def _flush(self) -> None:
        text = re.sub(r"\s+", " ", "".join(self._parts)).strip()
        if text:
            self.blocks.append(text)
        self._parts = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIP:
            self._skipping += 1
        if tag in _BLOCKS:
            self._flush()
        elif tag in _VOID:
            self._parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIP and self._skipping:
            self._skipping -= 1
        if tag in _BLOCKS:
            self._flush()

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._parts.append(data)


def html_paragraphs(page: str) -> list[str]:
    """The prose paragraphs of an HTML page; code, tables and menus are left out."""
    parser = _Paragraphs()
    parser.feed(page)
    parser.close()
    return [block for block in parser.blocks if is_prose(block)]


def is_prose(text: str) -> bool:
    """True for a paragraph that reads as English sentences rather than code or a menu."""
    words = text.split()
    if len(words) < 6 or len(text) > 4000 or not text.isascii():
        return False
    letters = sum(c.isalpha() or c == " " for c in text)
    plain = sum(w.strip(".,;:()'\"").isalpha() for w in words)
    return letters > 0.9 * len(text) and plain > 0.8 * len(words) and text[-1] in ".:!?)"


def unpack(packages: Path, name: str, work: Path) -> Path:
    """Unpack the .deb of one package below ``work`` and return its text folder."""
    target = work / name
    if not target.exists():
        target.mkdir(parents=True)
        (deb,) = packages.glob(f"{name}_*.deb")
        subprocess.run(["dpkg", "-x", str(deb), str(target)], check=True)
    return target / PACKAGES[name]


def wordnet_glosses(folder: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """(part of speech, word, definition, examples) of every WordNet synset, in file order."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  "):
                continue
            fields, _, gloss = line.partition(" | ")
            word = re.sub(r"\(\w+\)$", "", fields.split()[4]).replace("_", " ")
            pieces = [p.strip() for p in re.split(r';\s*(?=")', gloss.strip())]
            examples = [p.strip('" ') for p in pieces[1:] if p.startswith('"')]
            yield part, word, pieces[0].rstrip("; "), examples


def _wordnet_documents(folder: Path) -> Iterator[list[str]]:
    lead = {"noun": "{w}: {d}.", "verb": "To {w}: {d}.", "adj": "{w}: {d}.", "adv": "{w}: {d}."}
    batch: list[str] = []
    for part, word, definition, examples in wordnet_glosses(folder):
        if not (definition.isascii() and word.isascii()) or word[:1].isupper():
            continue
        text = lead[part].format(w=word, d=definition)
        for example in examples:
            if example.isascii() and len(example.split()) > 3:
                text += " " + example[0].upper() + example[1:].rstrip(".!?") + "."
        batch.append(text)
        if len(batch) == 12:
            yield batch
            batch = []


def documents(packages: Path, work: Path) -> Iterator[list[str]]:
    """All documents of the corpus as lists of paragraphs, without repeated paragraphs."""
    seen: set[bytes] = set()
    for name in PACKAGES:
        folder = unpack(packages, name, work)
        if name == "wordnet-base":
            yield from _wordnet_documents(folder)
            continue
        for page in sorted(folder.rglob("*.html")):
            fresh = []
            for block in html_paragraphs(page.read_text(encoding="utf-8", errors="ignore")):
                key = hashlib.blake2b(block.encode(), digest_size=12).digest()
                if key not in seen:
                    seen.add(key)
                    fresh.append(block)
            if sum(map(len, fresh)) > 200:
                yield fresh


def main() -> None:
    """Write docs.txt and docs.heldout.txt."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    kept: list[str] = []
    held: list[str] = []
    for i, document in enumerate(documents(args.packages, args.out / "unpacked")):
        (held if i % HELDOUT_EVERY == 7 else kept).append("\n".join(document) + "\n")
    for file, texts in (("docs.txt", kept), ("docs.heldout.txt", held)):
        (args.out / file).write_text("\n".join(texts), encoding="utf-8")
        print(f"{file}: {len(texts)} documents, {sum(map(len, texts)) / 1e6:.2f} M characters")


if __name__ == "__main__":
    main()
