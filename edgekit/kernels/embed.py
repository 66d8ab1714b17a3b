"""Rows of the embedding table; export/plugins/embed.cu."""

from __future__ import annotations

from edgekit.kernels.launch import Kernel, Launch, Size


def embed(T: Size, hidden_size: int) -> Launch:
    """Arguments: tokens [T] int32; table [vocab_size, H] bfloat16. Output: h [T, H] float32."""
    kernel = Kernel("embed.cu", "embed")
    return Launch(kernel, grid=(T, 1, 1), block=256, integers=(hidden_size,))
