"""The committed nano checkpoint against transformers, and the model against itself."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer  # noqa: E402

from edgekit.recipes.nano.chat import Conversation, Turn, prompt_text  # noqa: E402
from edgekit.recipes.nano.checkpoint import load_checkpoint  # noqa: E402
from edgekit.recipes.nano.generate import batched_replies, reply  # noqa: E402
from edgekit.recipes.nano.model import Cache  # noqa: E402

FOLDER = Path(__file__).parents[2] / "recipes" / "nano" / "checkpoint"


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return load_checkpoint(FOLDER).eval()


@torch.no_grad()
def test_transformers_loads_the_folder_and_agrees(model):
    reference = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    for module in reference.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, math.inf)
    tokens = torch.randint(24, model.config.vocab_size, (2, 200))
    theirs = reference.eval()(tokens).logits
    assert (theirs - model(tokens)).abs().max().item() < 1e-3


@torch.no_grad()
@pytest.mark.parametrize("pieces", [[200], [128, 72], [1] * 12 + [188], [127, 1, 72]])
def test_chunked_steps_equal_one_pass(model, pieces):
    tokens = torch.randint(24, model.config.vocab_size, (1, 200))
    cache = Cache()
    parts = [model(piece, cache) for piece in tokens.split(pieces, dim=1)]
    assert (torch.cat(parts, 1) - model(tokens)).abs().max().item() < 1e-3


def test_batched_answers_are_the_single_answers(model):
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    questions = ["Hello", "What is the capital of France?", "Thanks, bye!"]
    prompts = [prompt_text(Conversation([Turn("chat", q, "", "")])) for q in questions]
    single = [reply(model, tokenizer, prompt, limit=16) for prompt in prompts]
    assert batched_replies(model, tokenizer, prompts, limit=16) == single


def test_tokenizer_spells_numbers_and_keeps_special_ids():
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    ids = tokenizer.convert_tokens_to_ids(["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    assert ids == [0, 1, 2, 10, 11]
    assert tokenizer.convert_tokens_to_ids(["<think>", "</think>"]) == [12, 13]
    text = "<|im_start|>user\nWhat is 123 + 456?<|im_end|>\n"
    encoded = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(encoded) == text
    pieces = [tokenizer.decode([i]) for i in encoded]
    assert all(len(p.strip()) == 1 for p in pieces if any(c.isdigit() for c in p))
