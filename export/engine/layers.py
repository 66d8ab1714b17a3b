"""What an engine runs, as its inspector lists it, and whether that is what was asked for.

The builder logs the inspector's list when it is done, one layer a line. That needs no GPU, while
the inspector itself needs an engine that was loaded onto one.

    Name: ..., LayerType: gemm, Inputs: [ { Name: ..., Datatype: BFloat16, ... } ], Constants: [ ...
    ], Outputs: [ ... ], TacticName: ..., StreamId: 0, Metadata: [ONNX Layer: ...]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import BuildError

HEADINGS = ("Layers:", "Engine Layer Information:")
"""First words of the message, in TensorRT for RTX and in TensorRT."""
_FIELDS = re.compile(
    r"^Name: (?P<name>.*?), LayerType: (?P<kind>[^,]*), Inputs: \[(?P<inputs>.*?)\], "
    r"Constants: \[(?P<constants>.*?)\], Outputs: \[(?P<outputs>.*?)\], TacticName: .*"
    r"Metadata: (?P<metadata>.*)$"
)
_DATATYPE = re.compile(r"Datatype: (\w+)")
_ORIGIN = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_STORED_AS = {"int4": "Int4", "nvfp4": "FP4E2M1", "fp8": "FP8", "dense": "BFloat16"}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of an engine.

    Attributes:
        kind: what runs it: gemm, kgen, runtime_fusion, ...
        inputs, constants, outputs: their data types.
        nodes: the graph's nodes it was made from.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


def parse_layers(text: str) -> tuple[Layer, ...]:
    """The layers in the inspector's text; other lines are passed over."""
    layers = []
    for line in text.splitlines():
        found = _FIELDS.match(line)
        if found is None:
            continue
        types = {
            part: tuple(_DATATYPE.findall(found[part]))
            for part in ("inputs", "constants", "outputs")
        }
        nodes = tuple(_ORIGIN.findall(found["metadata"]))
        layers.append(Layer(found["name"], found["kind"], **types, nodes=nodes))
    return tuple(layers)


def check_layers(layers: Sequence[Layer], formats: frozenset[str], products: Sequence[str]) -> None:
    """Refuses an engine that computes in another precision than it was asked to.

    Args:
        formats: of the weights; each must still be there, in its own bits.
        products: names of the graph's MatMul nodes over weights, none of which may read float32.

    Raises:
        BuildError: no layers were listed, a format is gone, or a product fell back to float32.
    """
    if not layers:
        raise BuildError("the engine lists no layers", hint=_REPORT)
    constants = {dtype for layer in layers for dtype in layer.constants}
    gone = sorted(form for form in formats if _STORED_AS[form] not in constants)
    if gone:
        raise BuildError(
            f"the engine does not hold its {', '.join(gone)} weights in their own format",
            cause=f"its constants are {', '.join(sorted(constants))}",
            hint=_REPORT,
        )
    wanted = set(products)
    wide = [
        node
        for layer in layers
        if layer.kind == "gemm" and set(layer.inputs) == {"Float"}
        for node in layer.nodes
        if node in wanted
    ]
    if wide:
        raise BuildError(
            f"{len(wide)} matrix products of the engine fell back to float32",
            cause=wide[0],
            hint=_REPORT,
        )


def check_engine(trt: Any, log: Any, plan: Path, outputs: Sequence[str]) -> int:
    """Loads a plan onto this machine's GPU, which a builder of TensorRT has.

    Args:
        outputs: of its network, each of which must still be there: state comes out by them.

    Returns:
        how many layers it has, TensorRT's own copies among them.

    Raises:
        BuildError: it cannot be loaded, or an output is gone.
    """
    engine = trt.Runtime(log).deserialize_cuda_engine(plan.read_bytes())
    if engine is None:
        raise BuildError("the engine that was built cannot be loaded", hint=_REPORT)
    names = {engine.get_tensor_name(i) for i in range(engine.num_io_tensors)}
    gone = sorted(set(outputs) - names)
    if gone:
        raise BuildError(
            f"the engine has lost {len(gone)} of its outputs", cause=gone[0], hint=_REPORT
        )
    return int(engine.num_layers)


_REPORT = "use another version of TensorRT, and please report this one"
