"""Models over the fake session."""

from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import Model
from edgekit.runtime.prefix import PrefixStore
from edgekit.runtime.template import ChatTemplate
from tests.runtime.fake_session import FakeSession
from tests.runtime.fake_tokenizer import make_tokenizer

TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' ~ message.role ~ '\\n' }}
{%- if message.role == 'assistant' %}{{ '<think></think>' }}{% endif -%}
{{ (message.content | trim) ~ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n<think>' ~ ('\\n' if enable_thinking else '</think>') }}
{%- endif -%}
"""
"""As Nemotron's: an earlier answer loses its reasoning, so later prompts differ after `<think>`."""

GREEDY = SamplingParams(temperature=0.0, max_tokens=6)


def make_model(*, capacity=600, script=None, prefix_bytes=1 << 20, template=TEMPLATE):
    tokenizer = make_tokenizer()
    return Model(
        FakeSession(tokenizer.size, capacity, script=script),
        tokenizer,
        ChatTemplate(template) if template else None,
        sampling=GREEDY,
        name="fake",
        prefixes=PrefixStore(prefix_bytes),
    )


class Says:
    """A script: the model says these texts, one an answer, each ended by `<|im_end|>`.

    Which answer is due shows in how many assistant turns the committed tokens open.
    """

    def __init__(self, *texts):
        self._tokenizer = make_tokenizer()
        self._answers = [f"{text}<|im_end|>" for text in texts]

    def __call__(self, tokens):
        *before, said = self._tokenizer.decode(tokens).split("<|im_start|>assistant\n")
        opening = next((o for o in ("<think>\n", "<think></think>") if said.startswith(o)), None)
        if not before or opening is None:
            return None
        answer = self._answers[len(before) - 1]
        done = self._tokenizer.encode(said.removeprefix(opening), special=True)
        coming = self._tokenizer.encode(answer, special=True)
        return coming[len(done)] if coming[: len(done)] == done != coming else None
