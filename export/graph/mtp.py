"""The canonical graph of an MTP head: one attention and one MoE layer, applied again and again.

    x = eh_proj [enorm(embed(next token)); hnorm(hidden)]
    x = x + attention(norm_0(x));  x = x + moe(norm_1(x));  m = final_layernorm(x)

``tokens [T], hidden [T, hidden_size], rows [R], length`` and a KV cache go in;
``logits [R, vocab_size]`` and ``hidden_out [R, hidden_size]``, which is m, come out. The first
step's `hidden` is the target's, behind its final norm; a later step's is the m before it. No
positions are encoded.
Source: Lightning's checkpoint; vLLM's NemotronHMTP (DeepSeek-V3, arXiv:2412.19437, section 2.2).
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.export.checkpoint import Checkpoint
from edgekit.export.draft_checkpoint import MTP
from edgekit.export.graph.builder import GraphBuilder
from edgekit.export.graph.nemotron_h import FLOAT, INT64, StepWriter


def build_mtp(checkpoint: Checkpoint) -> ir.Model:
    """The graph of T steps side by side.

    Args:
        checkpoint: of `open_mtp`.
    """
    writer, spec = StepWriter(checkpoint, MTP), checkpoint.spec
    g = writer.g = GraphBuilder("mtp")
    tokens = g.input("tokens", INT64, ["T"])
    hidden = g.input("hidden", FLOAT, ["T", spec.hidden_size])
    rows = g.input("rows", INT64, ["R"])
    writer.length = g.input("length", INT64, [])

    table = writer.tensor("backbone.embeddings.weight")
    embedded = g.op("Cast", [g.op("Gather", [table, tokens], "embedded")], "x", to=FLOAT.value)
    both = [writer.norm(embedded, f"{MTP}.0.enorm"), writer.norm(hidden, f"{MTP}.0.hnorm")]
    x = writer.linear(g.op("Concat", both, "both", axis=-1), f"{MTP}.0.eh_proj")
    x = g.op("Add", [x, writer.attention(0, writer.norm(x, f"{MTP}.0.norm"))], f"{MTP}.0")
    x = g.op("Add", [x, writer.moe(1, writer.norm(x, f"{MTP}.1.norm"))], f"{MTP}.1")
    m = g.op("Gather", [writer.norm(x, f"{MTP}.1.final_layernorm"), rows], "final")
    logits = writer.linear(m, "lm_head")
    g.output(logits, "logits", FLOAT, ["R", spec.vocab_size])
    g.output(m, "hidden_out", FLOAT, ["R", spec.hidden_size])
    return g.model()
