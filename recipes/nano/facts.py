"""Build ``facts.json``: countries, chemical elements and word definitions with computable answers.

    pip download --no-deps -d DIR countryinfo mendeleev   # unpack the wheels below DIR
    python -m edgekit.recipes.nano.facts --wheels DIR --wordnet DIR --out recipes/nano/facts.json

The result is committed, so training needs none of these packages.
"""

# ruff: noqa: SIM905  word lists read better as text

import argparse
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CURRENCIES = {
    "AED": "dirham", "ARS": "Argentine peso", "AUD": "Australian dollar", "BDT": "taka",
    "BGN": "lev", "BRL": "real", "CAD": "Canadian dollar", "CHF": "Swiss franc",
    "CLP": "Chilean peso", "CNY": "yuan", "COP": "Colombian peso", "CZK": "Czech koruna",
    "DKK": "Danish krone", "EGP": "Egyptian pound", "ETB": "birr", "EUR": "euro",
    "GBP": "pound sterling", "GHS": "cedi", "HUF": "forint", "IDR": "rupiah", "ILS": "shekel",
    "INR": "Indian rupee", "ISK": "Icelandic krona", "JPY": "yen", "KES": "Kenyan shilling",
    "KRW": "won", "KZT": "tenge", "MAD": "Moroccan dirham", "MXN": "Mexican peso",
    "MYR": "ringgit", "NGN": "naira", "NOK": "Norwegian krone", "NPR": "Nepalese rupee",
    "NZD": "New Zealand dollar", "PEN": "sol", "PHP": "Philippine peso",
    "PKR": "Pakistani rupee", "PLN": "zloty", "RON": "leu", "RUB": "ruble", "SAR": "riyal",
    "SEK": "Swedish krona", "SGD": "Singapore dollar", "THB": "baht", "TND": "dinar",
    "TRY": "lira", "UAH": "hryvnia", "USD": "US dollar", "UYU": "Uruguayan peso",
    "UZS": "som", "VND": "dong", "ZAR": "rand",
}  # fmt: skip
LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "cs": "Czech", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "mn": "Mongolian", "ne": "Nepali", "nl": "Dutch", "no": "Norwegian",
    "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish",
    "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
COUNTRIES = """
Argentina Australia Austria Bangladesh Belgium Bolivia Brazil Bulgaria Cambodia Canada
Chile China Colombia Croatia Cuba Denmark Ecuador Egypt Estonia Ethiopia Finland France Georgia
Germany Ghana Greece Hungary Iceland India Indonesia Iran Iraq Ireland Israel Italy Jamaica Japan
Jordan Kazakhstan Kenya Latvia Lebanon Libya Lithuania Luxembourg Madagascar Malaysia Mali Malta
Mexico Mongolia Morocco Mozambique Namibia Nepal Netherlands New_Zealand Nigeria North_Korea Norway
Oman Pakistan Panama Paraguay Peru Philippines Poland Portugal Qatar Romania Russia Rwanda
Saudi_Arabia Senegal Serbia Singapore Slovakia Slovenia Somalia South_Africa South_Korea Spain
Sri_Lanka Sudan Sweden Switzerland Syria Tanzania Thailand Tunisia Turkey Uganda Ukraine
United_Arab_Emirates United_Kingdom United_States Uruguay Uzbekistan Venezuela Vietnam Yemen Zambia
Zimbabwe""".replace("_", " ").replace("\n", " ")
# The package is out of date or unidiomatic in these places.
CAPITALS = {"Kazakhstan": "Astana", "Switzerland": "Bern", "United States": "Washington, D.C."}
SOUTH_AMERICA = set(
    "Argentina Bolivia Brazil Chile Colombia Ecuador Paraguay Peru Uruguay Venezuela".split()
)
EURO_SINCE = {"Croatia", "Estonia", "Latvia", "Lithuania"}
CONCRETE = {"05", "06", "08", "13", "15", "17", "19", "20", "27"}  # WordNet lexicographer files
BLOCKED = re.compile(
    r"sex|prostitut|ethnic|slang|offens|dispar|obscen|firearm|genital|excre|negro|black person|"
    r"jew|nazi|"
    r"homosex|vagina|penis|rape|whore|drug|suicid|weapon|kill|murder|slave|islam|christ|religio|"
    r"communis|fascis|breast|buttock|anus|urin|feces|corpse|racial|race of|primitive|heroin|cocaine"
)


def country_names() -> list[str]:
    """The countries nano learns."""
    two_words = {"New", "North", "South", "Saudi", "Sri"}
    names: list[str] = []
    words = COUNTRIES.split()
    while words:
        take = 1
        if words[0] in two_words or words[:2] in (["United", "Kingdom"], ["United", "States"]):
            take = 2
        elif words[:2] == ["United", "Arab"]:
            take = 3
        names.append(" ".join(words[:take]))
        words = words[take:]
    return names


def countries(folder: Path) -> list[dict[str, str]]:
    """Name, capital, continent, currency and language of each country."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        raw = json.loads(file.read_text(encoding="utf-8"))
        found[raw["name"]] = raw
    out = []
    for name in country_names():
        raw = found[name]
        continent = raw["region"]
        if continent == "Americas":
            continent = "South America" if name in SOUTH_AMERICA else "North America"
        entry = {"name": name, "continent": continent}
        entry["capital"] = CAPITALS.get(name, raw["capital"]).replace("\u00ed", "i")
        entry["capital"] = entry["capital"].translate(str.maketrans("áéóãâ", "aeoaa"))
        codes = ["EUR"] if name in EURO_SINCE else raw["currencies"]
        currency = next((CURRENCIES[c] for c in codes if c in CURRENCIES), "")
        if currency:
            entry["currency"] = currency
        languages = raw["languages"]
        if languages and languages[0] in LANGUAGES and (len(languages) == 1 or name == "India"):
            entry["language"] = LANGUAGES[languages[0]]
        out.append(entry)
    return out


def elements(database: Path) -> list[dict[str, Any]]:
    """Name, symbol, atomic number and family of the elements."""
    with sqlite3.connect(database) as db:
        rows = db.execute(
            "SELECT e.name, e.symbol, e.atomic_number, s.name, e.period FROM elements e "
            "LEFT JOIN series s ON s.id = e.series_id WHERE e.atomic_number <= 103 "
            "ORDER BY e.atomic_number"
        ).fetchall()
    keys = ("name", "symbol", "number", "family", "period")
    out = [dict(zip(keys, row, strict=True)) for row in rows]
    for entry in out:
        family = re.sub(r"s$", "", entry["family"].lower())
        entry["family"] = family.replace("poor metal", "post-transition metal")
        entry["name"] = entry["name"].lower()
    return out


def _first_senses(folder: Path) -> Iterator[tuple[int, str, str, str, str]]:
    """(frequency, part, word, lexicographer file, definition) of each word's first sense."""
    counts = {}
    for line in (folder / "cntlist.rev").read_text(encoding="latin-1").splitlines():
        key, sense, count = line.split()
        lemma, rest = key.split("%")
        if sense == "1":
            counts[lemma, rest[0]] = int(count)
    for part, digit in (("noun", "1"), ("verb", "2"), ("adj", "3")):
        data = {}
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            data[line[:8]] = line
        for line in (folder / f"index.{part}").read_text(encoding="latin-1").splitlines():
            fields = line.split()
            if line.startswith("  ") or not fields[0].isalpha():
                continue
            synset = data[fields[-int(fields[2])]]
            gloss = synset.split(" | ")[1].strip()
            definition = "" if gloss[0] == "(" else re.split(r"[;(]|, (?:as|especially)", gloss)[0]
            seen = counts.get((fields[0], digit), 0)
            yield seen, part, fields[0], synset.split()[1], definition.strip(" ,.")


def rare_words(folder: Path, known: set[str]) -> list[str]:
    """Nouns outside nano's dictionary, for questions that it should decline."""
    rows = _first_senses(folder)
    words = [
        w for n, part, w, _, d in rows if part == "noun" and n == 0 and 5 <= len(w) <= 10 and d
    ]
    return [w for w in words if w not in known and not BLOCKED.search(w)][::53]


def plain_words(folder: Path) -> list[str]:
    """Short words to spell, sort and copy."""
    words = {w for n, _, w, _, d in _first_senses(folder) if n and 3 <= len(w) <= 8 and d}
    return [w for w in sorted(words) if w.isascii() and not BLOCKED.search(w)][::2]


def definitions(folder: Path) -> dict[str, list[list[str]]]:
    """[word, definition] pairs by part of speech: frequent words and everyday concrete nouns."""
    limits = {"noun": 600, "verb": 150, "adj": 150}
    ranked: dict[str, list[tuple[int, str, str]]] = {part: [] for part in limits}
    for count, part, word, lexfile, definition in _first_senses(folder):
        plain = re.fullmatch(r"[a-z ,'-]+", definition) and 12 < len(definition) < 64
        if not plain or len(word) < 3 or BLOCKED.search(definition) or BLOCKED.search(word):
            continue
        if word in definition.split() or definition.startswith(("the first", "of or relat")):
            continue
        if part == "noun" and lexfile in CONCRETE:
            count = 3 * count + 4
        ranked[part].append((count, word, definition))
    return {
        part: [[w, d] for _, w, d in sorted(rows, key=lambda r: (-r[0], r[1]))[: limits[part]]]
        for part, rows in ranked.items()
    }


def main() -> None:
    """Write facts.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    facts: dict[str, Any] = {
        "countries": countries(args.wheels / "countryinfo" / "data"),
        "elements": elements(args.wheels / "mendeleev" / "elements.db"),
        "words": definitions(args.wordnet),
    }
    known = {w for pairs in facts["words"].values() for w, _ in pairs}
    facts["rare"] = rare_words(args.wordnet, known)
    facts["plain"] = plain_words(args.wordnet)
    rows = [f'"{k}": {json.dumps(v, ensure_ascii=False)}' for k, v in facts.items()]
    args.out.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(len(facts["countries"]), len(facts["elements"]), args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
