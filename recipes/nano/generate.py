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


def split_reply(tokenizer: Tokenizer, out: list[int], stopped: bool) -> Reply:
    """Split a generated turn into thought, answer and tool call."""
    text = tokenizer.decode(out, skip_special_tokens=False)
    thought = ""
    if END_THINK in text:
        thought, _, text = text.partition(END_THINK)
    call = ""
    if TOOL_CALL in text:
        text, _, rest = text.partition(TOOL_CALL)
        call = TOOL_CALL + rest[: rest.find(END_TOOL_CALL)] + END_TOOL_CALL
    return Reply(thought.strip(), text.strip(), call, stopped, len(out))


def reply(
    model: NemotronH,
    tokenizer: Tokenizer,
    prompt: str,
    limit: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
) -> Reply:
    """Generate one assistant turn."""
    stops = {tokenizer.token_to_id(IM_END), tokenizer.token_to_id(EOS)}
    out: list[int] = []
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    for token in stream(model, ids, limit, temperature, seed):
        if token in stops:
            return split_reply(tokenizer, out, True)
        out.append(token)
    return split_reply(tokenizer, out, False)


@torch.no_grad()
def batched_replies(
    model: NemotronH, tokenizer: Tokenizer, prompts: list[str], limit: int, room: int = 300_000
) -> list[Reply]:
    """Greedy answers to many prompts at once.

    Every step reads the whole rows again: the model is causal, so padding on the right
    changes nothing, and no cache has to be aligned. ``room`` bounds the tokens of one forward pass.
    """
    device = model.lm_head.weight.device
    stops = {tokenizer.token_to_id(IM_END), tokenizer.token_to_id(EOS)}
    encoded = [tokenizer.encode(p, add_special_tokens=False).ids for p in prompts]
    waiting = sorted(range(len(prompts)), key=lambda i: len(encoded[i]))
    done: dict[int, Reply] = {}
    while waiting:
        count = 1
        while count < len(waiting) and (len(encoded[waiting[count]]) + 64) * count < room:
            count += 1
        batch, waiting = waiting[:count], waiting[count:]
        start = {i: len(encoded[i]) for i in batch}
        while batch:
            length = max(len(encoded[i]) for i in batch)
            width = length + -length % 64
            rows = torch.tensor([encoded[i] + [0] * (width - len(encoded[i])) for i in batch])
            ends = torch.tensor([len(encoded[i]) - 1 for i in batch], device=device)
            hidden, _ = model.hidden(rows.to(device))
            last = hidden[torch.arange(len(batch), device=device), ends]
            for i, token in zip(batch, model.lm_head(last).argmax(-1).tolist(), strict=True):
                made = len(encoded[i]) - start[i]
                if token in stops or made == limit:
                    done[i] = split_reply(tokenizer, encoded[i][start[i] :], token in stops)
                else:
                    encoded[i].append(token)
            batch = [i for i in batch if i not in done]
    return [done[i] for i in range(len(prompts))]


def replies(model: NemotronH, tokenizer: Tokenizer, prompts: list[str], limit: int) -> list[Reply]:
    """Greedy answers to many prompts: batched on a GPU, one by one with a cache on a CPU."""
    if model.lm_head.weight.device.type == "cpu":
        return [reply(model, tokenizer, p, limit) for p in prompts]
    return batched_replies(model, tokenizer, prompts, limit)
