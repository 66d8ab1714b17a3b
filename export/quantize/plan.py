"""From a recipe's rules to one number format for each weight of one model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgekit.errors import EdgekitError
from edgekit.export.checkpoint import linear_modules
from edgekit.export.quantize.rules import Rules, input_quantizer, weight_quantizer
from edgekit.model import ModelSpec
from edgekit.ops.formats import INT4_GROUPS, NVFP4_BLOCK, WeightFormat

Kind = Literal["nvfp4", "nvfp4_4o6", "fp8", "fp8_mse", "int4"]

_MSE = {"fp8_scale_sweep": False, "start_multiplier": 1.0, "stop_multiplier": 1.5, "step_size": 0.5}
_IGNORED = {"enable", "effective_bits"}


@dataclass(frozen=True, slots=True)
class Numerics:
    """How one weight is quantized: see `edgekit.export.quantize.numerics`.

    Attributes:
        group: columns that share a scale; 0 for the whole tensor.
    """

    kind: Kind
    group: int = 0

    @property
    def format(self) -> WeightFormat:
        """What it is stored as."""
        if self.kind == "int4":
            return "int4"
        return "fp8" if self.kind.startswith("fp8") else "nvfp4"


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """What happens to the weights of one model.

    Attributes:
        modules: the quantized ones by checkpoint name, in execution order.
        activations: quantizers of activations that the recipe has on, as patterns to show.
        beyond: why the weights cannot be quantized from themselves alone; empty when they can.
    """

    modules: Mapping[str, Numerics]
    activations: tuple[str, ...] = ()
    beyond: str = ""


def plan_weights(rules: Rules, spec: ModelSpec) -> WeightPlan:
    """Applies the rules to every matrix of a model.

    Raises:
        EdgekitError: a rule quantizes what edgekit keeps dense, or a width does not divide.
    """
    modules: dict[str, Numerics] = {}
    activations: dict[str, None] = {}
    beyond = ""
    for module, (_, K) in linear_modules(spec):
        attributes = rules.attributes(*weight_quantizer(module))
        if attributes is None:
            continue
        numerics = numerics_of(attributes, rules.algorithm)
        if isinstance(numerics, str):
            beyond = beyond or f"{module}: {numerics}"
            continue
        check_width(module, K, numerics)
        modules[module] = numerics
        if rules.attributes(*input_quantizer(module)) is not None:
            activations[module.rpartition(".")[2]] = None
    for i in spec.layers_of("*"):
        name = f"model.layers.{i}.mixer"
        if rules.attributes(f"{name}.k_bmm_quantizer", "NemotronHAttention") is not None:
            activations["KV cache"] = None
        fused = [p for p in "qkv" if f"backbone.layers.{i}.mixer.{p}_proj" in modules]
        if any(modules[f"backbone.layers.{i}.mixer.{p}_proj"].kind != "int4" for p in fused):
            beyond = beyond or "attention: ModelOpt gives q, k and v one scale"
    _check_dense(rules, spec)
    return WeightPlan(modules, tuple(activations), beyond)


def numerics_of(attributes: Mapping[str, Any], algorithm: Mapping[str, Any]) -> Numerics | str:
    """The numerics of one quantizer, or why these are not among ours."""
    method = algorithm.get("method") or "max"
    mse = method == "mse"
    if mse and {key: algorithm.get(key) for key in _MSE} != _MSE:
        return "the mse search is another than multipliers 1.0 and 1.5"
    if method not in ("max", "mse"):
        return f"algorithm {method} looks at activations"
    unknown = set(attributes) - _IGNORED - {"num_bits", "axis", "block_sizes"}
    blocks = {str(key): value for key, value in (attributes.get("block_sizes") or {}).items()}
    width = blocks.pop("-1", 0)
    bits = _float_bits(attributes.get("num_bits"))
    if unknown or attributes.get("axis") is not None:
        return f"unknown attributes {sorted(unknown) or ['axis']}"
    if bits == (4, 3) and not width and not blocks:
        return Numerics("fp8_mse" if mse else "fp8")
    if bits == 4 and width in INT4_GROUPS and blocks.get("type", "static") == "static" and not mse:
        return Numerics("int4", width)
    if bits == (2, 1) and width == NVFP4_BLOCK and _float_bits(blocks.get("scale_bits")) == (4, 3):
        four_over_six = bool(blocks.get("four_over_six"))
        static = blocks.get("type", "static") == "static"
        if static and four_over_six and mse:
            return Numerics("nvfp4_4o6", NVFP4_BLOCK)
        if not static and not four_over_six:  # dynamic blocks have nothing for mse to search
            return Numerics("nvfp4", NVFP4_BLOCK)
    return f"num_bits {attributes.get('num_bits')}, blocks {attributes.get('block_sizes')}"


def _float_bits(value: Any) -> Any:
    """(exponent, mantissa) bits of a float format, an int for an integer one."""
    if isinstance(value, str) and len(value) == 4 and value[0] == "e" and value[2] == "m":
        return int(value[1]), int(value[3])
    return tuple(value) if isinstance(value, list) else value


def check_width(module: str, K: int, numerics: Numerics) -> None:
    """Refuses groups that K columns cannot be cut into."""
    if numerics.group and K % numerics.group:
        divisors = [str(g) for g in INT4_GROUPS if K % g == 0]
        raise EdgekitError(
            f"groups of {numerics.group} do not divide the {K} columns of {module}",
            cause="ModelOpt pads here without a word, and no kernel reads the result",
            hint=f"groups of {' or '.join(divisors)} do" if divisors else "leave it out",
        )


def _check_dense(rules: Rules, spec: ModelSpec) -> None:
    """Refuses rules for what edgekit's graph has no quantized form of."""
    dense: Iterable[tuple[str, str]] = [
        ("model.embeddings.weight_quantizer", "nn.Embedding"),
        *(
            (f"model.layers.{i}.mixer.conv1d.weight_quantizer", "nn.Conv1d")
            for i in spec.layers_of("M")
        ),
    ]
    for name, parent in dense:
        if rules.attributes(name, parent) is not None:
            raise EdgekitError(
                f"{rules.where} quantizes {name.removesuffix('.weight_quantizer')}",
                cause="edgekit keeps embeddings and convolutions dense",
                hint=f"add the rule {{quantizer_name: '{name}', enable: false}} at its end",
            )
