"""Text generation with the plain torch model, one sequence at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from edgekit.recipes.nano.model import Cache, NemotronH
from edgekit.recipes.nano.tokenizer import END_THINK, END_TOOL_CALL, EOS, IM_END, TOOL_CALL


@dataclass(frozen=True, slots=True)
class Reply:
    """A generated assistant turn."""

    thought: str
    answer: str
    call: str
    stopped: bool
    tokens: int


@torch.no_grad()
def stream(
    model: NemotronH, prompt: list[int], limit: int, temperature: float = 0.0, seed: int = 0
) -> Iterator[int]:
    """Token ids after the prompt; greedy at temperature zero."""
    generator = torch.Generator().manual_seed(seed)
    cache = Cache()
    pending = torch.tensor([prompt])
    for _ in range(limit):
        hidden, _ = model.hidden(pending, cache)
        logits = model.lm_head(hidden[0, -1])
        if temperature > 0:
            chances = torch.softmax(logits / temperature, -1)
            token = int(torch.multinomial(chances, 1, generator=generator))
        else:
            token = int(logits.argmax())
        yield token
        pending = torch.tensor([[token]])


def reply(
    model: NemotronH,
    tokenizer: Tokenizer,
    prompt: str,
    limit: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
) -> Reply:
    """Generate one assistant turn and split it into thought, answer and tool call."""
    stops = {tokenizer.token_to_id(IM_END), tokenizer.token_to_id(EOS)}
    out: list[int] = []
    stopped = False
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    for token in stream(model, ids, limit, temperature, seed):
        if token in stops:
            stopped = True
            break
        out.append(token)
    text = tokenizer.decode(out, skip_special_tokens=False)
    thought = ""
    if END_THINK in text:
        thought, _, text = text.partition(END_THINK)
    call = ""
    if TOOL_CALL in text:
        text, _, rest = text.partition(TOOL_CALL)
        call = TOOL_CALL + rest[: rest.find(END_TOOL_CALL)] + END_TOOL_CALL
    return Reply(thought.strip(), text.strip(), call, stopped, len(out))
