"""Whether a checkpoint's text files are such that a bundle of them will talk.

A bundle carries them unchanged, so what is wrong with them is wrong before a long build starts.
"""

from __future__ import annotations

from pathlib import Path

from edgekit.errors import CheckpointError, EdgekitError
from edgekit.model import ModelSpec
from edgekit.runtime.model import sampling_defaults
from edgekit.runtime.template import ChatTemplate
from edgekit.runtime.tokenizer import Tokenizer

_PROBE = ({"role": "user", "content": "Hello"},)


def check_text_files(folder: Path, spec: ModelSpec) -> None:
    """Loads tokenizer.json, the chat template and generation_config.json as a bundle's are.

    Raises:
        CheckpointError: with the first thing that is wrong.
    """
    try:
        tokenizer = Tokenizer.load(folder)
        tokenizer.check_vocab(spec.vocab_size)
        template = ChatTemplate.load(folder)
        if template is not None:
            template.render(_PROBE)
        sampling_defaults(folder)
    except EdgekitError as error:
        raise CheckpointError(
            f"{folder} cannot talk: {error.message}",
            cause=error.cause,
            hint="download this file of the checkpoint again, then build",
        ) from None
    beyond = [token for token in tokenizer.eos_token_ids if not 0 <= token < spec.vocab_size]
    if beyond:
        raise CheckpointError(
            f"{folder} cannot talk: eos_token_id {beyond[0]} is no token of the model",
            cause=f"ids run from 0 to {spec.vocab_size - 1}",
            hint="take generation_config.json and config.json from the same checkpoint",
        )
