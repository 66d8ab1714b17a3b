"""The kernels a bundle needs, compiled into it: the runtime needs no compiler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import onnx_ir as ir

from edgekit.export.bundle_writer import BundleWriter
from edgekit.export.plugins.compile import compile_kernels, source_hash
from edgekit.kernels.launch import Kernel
from edgekit.kernels.nodes import DOMAIN, form
from edgekit.kernels.weights import MAX_TOKENS
from edgekit.manifest import KERNELS


def collect_kernels(models: Iterable[ir.Model]) -> list[Kernel]:
    """Every kernel that the graphs launch for any number of tokens they may be given."""
    found: dict[Kernel, None] = {}
    for model in models:
        for op, attributes in _distinct_nodes(model):
            for T in range(1, MAX_TOKENS + 1):
                found[form(op, attributes, T).launch.kernel] = None
    return list(found)


def write_kernels(models: Iterable[ir.Model], sm: int, writer: BundleWriter) -> str:
    """Compiles the kernels for one SM into the bundle, and an index by `Kernel.key`.

    Returns:
        a hash of their sources.

    Raises:
        MissingDependencyError, BuildError: see `compile_kernels`.
    """
    index = {}
    digest = hashlib.sha256()
    for compiled in compile_kernels(collect_kernels(models), sm):
        own_hash = source_hash(compiled.kernel)
        name = f"kernels/{compiled.kernel.name}-{own_hash}.cubin"
        writer.path(name).write_bytes(compiled.path.read_bytes())
        index[compiled.kernel.key] = name
        digest.update(own_hash.encode())
    writer.path(KERNELS).write_text(json.dumps(index, indent=1) + "\n")
    return digest.hexdigest()[:32]


def _distinct_nodes(model: ir.Model) -> list[tuple[str, dict[str, object]]]:
    """Launches that differ in more than their arrays."""
    distinct = {}
    for node in model.graph:
        if node.domain == DOMAIN:
            attributes = {name: attribute.value for name, attribute in node.attributes.items()}
            distinct[node.op_type, tuple(sorted(attributes.items()))] = attributes
    return [(op, attributes) for (op, _), attributes in distinct.items()]
