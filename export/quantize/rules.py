"""A ModelOpt recipe, read without ModelOpt: which weights it quantizes, and how.

A recipe is an ordered list of rules, a wildcard over quantizer names each; a later rule overrides
an earlier one. Names are those of transformers' modules with ModelOpt's quantizers in them:
`model.layers.1.mixer.experts.up_proj_weight_quantizers.3` for what the checkpoint calls
`backbone.layers.1.mixer.experts.3.up_proj`. `$import` takes snippets from ModelOpt's library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from edgekit.errors import EdgekitError, MissingDependencyError

_EXPERT = re.compile(r"(.*\.mixer\.experts)\.(\d+)\.(\w+)")
_INDEX = re.compile(r"((?:weight|input)_quantizer)s?\.\d+(?=$|\.)")
_LIBRARY = "modelopt_recipes"


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `quant_cfg`: `attributes` None switches only."""

    quantizer: str
    enable: bool
    attributes: Mapping[str, Any] | None
    parent_class: str | None


@dataclass(frozen=True, slots=True)
class Rules:
    """A ModelOpt recipe's quantization.

    Attributes:
        algorithm: calibration: its method and parameters.
        where: the file, for errors.
    """

    rules: tuple[Rule, ...]
    algorithm: Mapping[str, Any]
    where: str

    def attributes(self, quantizer: str, parent_class: str) -> Mapping[str, Any] | None:
        """What a quantizer is set to, None when it is off.

        Args:
            quantizer: its name in ModelOpt. parent_class: of the module it belongs to.
        """
        enabled, found = True, dict[str, Any]()
        short = _INDEX.sub(r"\1", quantizer)
        for rule in self.rules:
            if rule.parent_class not in (None, parent_class):
                continue
            if fnmatchcase(quantizer, rule.quantizer) or fnmatchcase(short, rule.quantizer):
                enabled = rule.enable
                if rule.attributes is not None:
                    found = dict(rule.attributes)
        return found if enabled else None


def weight_quantizer(module: str) -> tuple[str, str]:
    """The name of a module's weight quantizer in ModelOpt, and the class it belongs to."""
    name = re.sub(r"^backbone\.", "model.", module)
    expert = _EXPERT.fullmatch(name)
    if expert is None:
        return f"{name}.weight_quantizer", "nn.Linear"
    experts, index, projection = expert.groups()
    return f"{experts}.{projection}_weight_quantizers.{index}", "NemotronHExperts"


def input_quantizer(module: str) -> tuple[str, str]:
    """The same for the quantizer of a module's input, which the experts of a layer share."""
    name, parent = weight_quantizer(module)
    return re.sub(r"weight_quantizer(s\.\d+)?$", "input_quantizer", name), parent


def read_rules(source: Path | str) -> Rules:
    """Reads a recipe from a file, or from ModelOpt's library by name.

    Raises:
        MissingDependencyError: it needs the library, which is not installed.
        EdgekitError: it is no quantization recipe.
    """
    path = source if isinstance(source, Path) else _library_file(source)
    try:
        content = _Reader({}).read(path)
        quantize = content["quantize"]
        algorithm = quantize.get("algorithm")
        rules = tuple(_rules(quantize["quant_cfg"]))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise EdgekitError(
            f"{path} is no ModelOpt recipe for quantization",
            cause=f"{type(error).__name__}: {error}",
            hint="modelopt.recipe.load_recipe must take it",
        ) from None
    if not isinstance(algorithm, Mapping):
        algorithm = {"method": algorithm}
    return Rules(rules, algorithm, str(path))


def _rules(entries: Sequence[Mapping[str, Any]]) -> Iterator[Rule]:
    for entry in entries:
        unknown = set(entry) - {"quantizer_name", "enable", "cfg", "parent_class"}
        if unknown:
            raise ValueError(f"unknown keys {sorted(unknown)} in quant_cfg")
        attributes = entry.get("cfg")
        if attributes is not None and not isinstance(attributes, Mapping):
            raise ValueError(f"cfg of {entry['quantizer_name']!r} is no mapping")
        enable = entry.get("enable", True)
        yield Rule(entry["quantizer_name"], enable, attributes, entry.get("parent_class"))


class _Reader:
    """Resolves `imports` and `$import`: a mapping merges into its place, a list is spliced."""

    def __init__(self, imports: Mapping[str, str]) -> None:
        self.imports = imports

    def read(self, path: Path) -> Any:
        documents = [d for d in yaml.safe_load_all(path.read_text()) if d is not None]
        imports: dict[str, str] = {}
        for document in documents:
            if isinstance(document, dict):
                imports.update(document.pop("imports", None) or {})
        content = documents[-1]
        if content == {} and len(documents) > 1:
            content = documents[-2]
        return _Reader(imports).resolve(content)

    def resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            found: list[Any] = []
            for item in value:
                resolved = self.resolve(item)
                spliced = isinstance(item, dict) and "$import" in item
                found += resolved if spliced and isinstance(resolved, list) else [resolved]
            return found
        if not isinstance(value, dict):
            return value
        rest = {key: self.resolve(item) for key, item in value.items() if key != "$import"}
        if "$import" not in value:
            return rest
        names = value["$import"]
        imported = [self._load(name) for name in (names if isinstance(names, list) else [names])]
        if not rest and len(imported) == 1:
            return imported[0]
        merged: dict[str, Any] = {}
        for part in (*imported, rest):
            merged.update(part)
        return merged

    def _load(self, name: str) -> Any:
        return self.read(_library_file(self.imports[name]))


def _library_file(name: str) -> Path:
    spec = find_spec(_LIBRARY)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(
            f"the recipe {name} is part of NVIDIA ModelOpt, which is not installed",
            hint="pip install 'edgekit-nemotron[quantize]'",
        )
    for suffix in ("", ".yaml", ".yml"):
        path = Path(next(iter(spec.submodule_search_locations))) / f"{name}{suffix}"
        if path.is_file():
            return path
    raise EdgekitError(
        f"ModelOpt's library has no recipe {name}",
        hint="a ModelOpt release has moved it: pip install 'nvidia-modelopt==0.47.0'",
    )
