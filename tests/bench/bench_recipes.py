"""What quantizing costs nano: exact match by skill and logits, each recipe against BF16.

    python -m tests.bench.bench_recipes [--per-skill 24] [--json FILE]

Every recipe is built and answers the same held-out questions greedily through the runtime; see
`edgekit.runtime.quality` for what is counted. `edgekit build --report` does this for one recipe.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgekit.cli import main as edgekit
from edgekit.recipes.nano.questions import questions
from edgekit.runtime.model import Model, load_model
from edgekit.runtime.quality import compare, record_reference

RECIPES = ("nano-fp8", "nano-nvfp4", "nano-int4")


def build(recipe: str, folder: Path) -> Model:
    """nano by one recipe, loaded."""
    output = folder / recipe
    command = ["build", "nano", "--device", "cpu", "--recipe", recipe, "--output", str(output)]
    if edgekit(command):
        raise SystemExit(1)
    return load_model(output, threads=1)


def main(argv: Sequence[str] | None = None) -> None:
    """Builds, asks and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-skill", type=int, default=24)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    asked = [question for question in questions(arguments.per_skill, seed=11) if question.checked]
    records = []
    with tempfile.TemporaryDirectory() as folder:
        with build("nano-bf16", Path(folder)) as model:
            reference = record_reference(model, asked)
        print(f"{len(asked)} questions, {sum(reference.answers.right)} right in BF16")
        for recipe in RECIPES:
            with build(recipe, Path(folder)) as model:
                quality = compare(reference, model)
            records.append({"recipe": recipe, **quality.as_dict()})
            print(
                f"{recipe:12} right {quality.right:.1%}  lost {quality.lost:+.1f} points "
                f"+- {quality.interval:.1f}  KL {quality.kl:.5f}"
            )
            worst = sorted(quality.skills.items(), key=lambda item: -item[1])[:6]
            changes = ", ".join(f"{name} {-lost:+d}" for name, lost in worst if lost)
            print(f"             {changes}")
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
