"""The decode loop: what comes out, when it ends, and what it leaves in the session."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import BuildError, DoesNotFitError, UsageError
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.generate import generate
from edgekit.runtime.session import MAX_VERIFY
from tests.runtime.fake_session import FakeSession, scripted
from tests.runtime.fake_tokenizer import make_tokenizer

TOKENIZER = make_tokenizer()
END = TOKENIZER.id("<|im_end|>")
GREEDY = SamplingParams(temperature=0.0)
PROMPT = TOKENIZER.encode("hello world, this is a question")


def tokens_of(text):
    return TOKENIZER.encode(text, special=True)


def answer_with(answer, params=GREEDY, *, prompt=PROMPT, capacity=200, **options):
    """The session and the events of a generation in which the model says `answer`."""
    script = scripted(len(prompt), [*tokens_of(answer), END])
    session = FakeSession(TOKENIZER.size, capacity, script=script)
    options = {"tokenizer": TOKENIZER, "stop_token_ids": (END,), **options}
    return session, list(generate(session, prompt, params, **options))


def text_of(events, channel="content"):
    return "".join(event.text for event in events if event.channel == channel)


def all_tokens(events):
    return [token for event in events for token in event.tokens]


def greedy(prompt, n):
    """The reference: a fresh session, one step a token."""
    session = FakeSession(TOKENIZER.size, 200)
    for token in prompt:
        output = session.step([token])
    tokens = []
    for _ in range(n):
        tokens.append(int(output.logits[0].argmax()))
        output = session.step(tokens[-1:])
    return tokens


def test_an_answer_and_its_end():
    session, events = answer_with("Hello, é😀!")
    assert text_of(events) == "Hello, é😀!"
    assert all_tokens(events) == [*tokens_of("Hello, é😀!"), END]
    assert [e.finish_reason for e in events] == [None] * (len(events) - 1) + ["stop"]
    assert events[-1].tokens == (END,)
    assert events[-1].text == ""
    assert session.committed == [*PROMPT, *tokens_of("Hello, é😀!")]
    stats = events[-1].stats
    assert stats.prompt_tokens == len(PROMPT)
    assert stats.cached_tokens == 0
    assert stats.completion_tokens == len(all_tokens(events))
    assert stats.reasoning_tokens == 0
    assert stats.prompt_seconds > 0
    assert stats.decode_seconds > 0


def test_a_character_comes_whole():
    _, events = answer_with("😀")
    assert [e.text for e in events if e.tokens] == ["", "", "", "😀", ""]


def test_an_incomplete_character_is_replaced_at_the_end():
    prompt = PROMPT
    half = tokens_of("a😀")[:3]
    session = FakeSession(TOKENIZER.size, script=scripted(len(prompt), [*half, END]))
    events = list(generate(session, prompt, GREEDY, tokenizer=TOKENIZER, stop_token_ids=[END]))
    assert [e.text for e in events if e.tokens] == ["a", "", "", "\ufffd"]


def test_prefill_goes_in_chunks_that_can_be_given_up():
    prompt = list(range(20))
    session, events = answer_with("ok", prompt=prompt)
    assert session.steps[:3] == [8, 8, 4]
    waiting = [e for e in events if not e.tokens]
    assert len(waiting) == 2
    assert all(e.text == "" and e.stats.completion_tokens == 0 for e in waiting)
    stream = generate(session_new := FakeSession(), prompt, GREEDY, tokenizer=TOKENIZER)
    next(stream)
    stream.close()
    assert session_new.committed == prompt[:8]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_max_tokens(count):
    session, events = answer_with("Hello: a, b, c, d.", SamplingParams(0.0, max_tokens=count))
    assert all_tokens(events) == tokens_of("Hello: a, b, c, d.")[:count]
    assert events[-1].finish_reason == "length"
    assert len(session.committed) == len(PROMPT) + count - 1


def test_max_tokens_zero_prefills_only():
    session, events = answer_with("Hello", SamplingParams(0.0, max_tokens=0))
    assert all_tokens(events) == []
    assert [e.finish_reason for e in events][-1] == "length"
    assert session.committed == PROMPT


def test_the_end_of_the_context():
    prompt = list(range(10))
    session = FakeSession(capacity=14)
    events = list(generate(session, prompt, GREEDY, tokenizer=TOKENIZER))
    assert all_tokens(events) == greedy(prompt, 4)
    assert events[-1].finish_reason == "length"
    assert session.length == 13


def test_a_prompt_that_fills_the_context():
    session = FakeSession(capacity=10)
    events = list(generate(session, list(range(10)), GREEDY, tokenizer=TOKENIZER))
    assert all_tokens(events) == []
    assert events[-1].finish_reason == "length"
    assert session.length == 10


def test_requests_are_refused_before_any_work():
    session = FakeSession(capacity=10)
    with pytest.raises(DoesNotFitError, match="11 tokens, the context holds 10"):
        generate(session, list(range(11)), GREEDY, tokenizer=TOKENIZER)
    with pytest.raises(UsageError, match="prompt is empty"):
        generate(session, [], GREEDY, tokenizer=TOKENIZER)
    with pytest.raises(UsageError, match="outside the vocabulary"):
        generate(session, [1, session.vocab_size], GREEDY, tokenizer=TOKENIZER)
    with pytest.raises(UsageError, match="outside the vocabulary"):
        generate(session, [-1], GREEDY, tokenizer=TOKENIZER)
    with pytest.raises(UsageError, match="temperature"):
        generate(session, [1], SamplingParams(-1.0), tokenizer=TOKENIZER)
    with pytest.raises(ValueError, match="said to be cached"):
        generate(session, [1, 2], GREEDY, tokenizer=TOKENIZER, cached_tokens=1)
    assert session.steps == []


def test_stop_token_ids_of_the_request():
    stop = tokens_of("!")[0]
    _, events = answer_with("Hello! More", SamplingParams(0.0, stop_token_ids=(stop,)))
    assert text_of(events) == "Hello"
    assert events[-1].finish_reason == "stop"
    assert all_tokens(events)[-1] == stop


@pytest.mark.parametrize("stop", ["question", "Qu", " is this", "?", "no such text"])
def test_stop_strings(stop):
    answer = "What is this Question? A question."
    session, events = answer_with(answer, SamplingParams(0.0, stop=(stop,)))
    assert text_of(events) == answer.partition(stop)[0]
    assert events[-1].finish_reason == "stop"
    # Only complete steps are in the session, and the token that ended it is none.
    assert session.committed == [*PROMPT, *all_tokens(events)][: session.length]


def test_a_stop_string_across_tokens_never_shows():
    _, events = answer_with("a\n\nb", SamplingParams(0.0, stop=("\n\nb",)))
    assert [e.text for e in events if e.tokens] == ["a", "", "", ""]


def test_a_false_start_of_a_stop_string_shows_at_the_end():
    _, events = answer_with("a\n\n", SamplingParams(0.0, stop=("\n\nb",)))
    assert text_of(events) == "a\n\n"
    _, events = answer_with("a\n\nb", SamplingParams(0.0, stop=("\n\nb",), max_tokens=3))
    assert text_of(events) == "a\n\n"
    assert events[-1].finish_reason == "length"


def test_reasoning_then_content():
    _, events = answer_with("Hm, so.\n</think>\n\nYes.", start_in_reasoning=True)
    assert text_of(events, "reasoning") == "Hm, so."
    assert text_of(events) == "Yes."
    assert events[-1].stats.reasoning_tokens == len(tokens_of("Hm, so.\n</think>"))
    assert all_tokens(events) == [*tokens_of("Hm, so.\n</think>\n\nYes."), END]
    assert events[0].channel == "reasoning"
    assert events[-1].channel == "content"


def test_stop_strings_do_not_cut_the_reasoning():
    _, events = answer_with(
        "a. b.</think>c. d.", SamplingParams(0.0, stop=(".",)), start_in_reasoning=True
    )
    assert text_of(events, "reasoning") == "a. b."
    assert text_of(events) == "c"


def test_a_token_that_ends_reasoning_and_begins_content():
    """Markup spelled out in ordinary tokens, the last of which goes on."""
    tokens = [*TOKENIZER.encode("x </thin"), *TOKENIZER.encode("k")]
    end = TOKENIZER.size - 1
    script = scripted(len(PROMPT), [*tokens, end])
    session = FakeSession(TOKENIZER.size, script=script)
    TOKENIZER._bytes[end] = b">\nyes"
    try:
        events = list(
            generate(
                session,
                PROMPT,
                SamplingParams(0.0, max_tokens=len(tokens) + 1),
                tokenizer=TOKENIZER,
                start_in_reasoning=True,
            )
        )
    finally:
        del TOKENIZER._bytes[end]
    assert text_of(events, "reasoning") == "x"
    assert text_of(events) == "yes"
    assert all_tokens(events) == [*tokens, end]


def test_no_chat_means_no_splitting():
    _, events = answer_with("<think>\na</think>\nb")
    assert text_of(events) == "<think>\na</think>\nb"


def test_special_tokens_have_no_text():
    _, events = answer_with("a<s>b<|im_start|>c")
    assert text_of(events) == "abc"
    assert TOKENIZER.id("<s>") in all_tokens(events)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(0, 12), st.integers(1, 9))
def test_closing_early_leaves_committed_tokens(prompt_length, events_read, chunk):
    prompt = [(7 * i) % 300 for i in range(prompt_length)]
    session = FakeSession(prefill_chunk=chunk)
    stream = generate(session, prompt, GREEDY, tokenizer=TOKENIZER)
    read = [next(stream) for _ in range(events_read)]
    stream.close()
    known = [*prompt, *all_tokens(read)]
    assert session.committed == known[: session.length]
    # It can go on from there as if nothing had happened.
    rest = known[session.length :] or [1]
    produced = session.step(rest[:1]).logits[0].argmax()
    assert produced == greedy([*session.committed], 1)[0]


def test_resuming_from_cached_tokens():
    session = FakeSession()
    session.step(PROMPT[:6])
    params = SamplingParams(0.0, max_tokens=5)
    events = list(generate(session, PROMPT, params, tokenizer=TOKENIZER, cached_tokens=6))
    assert all_tokens(events) == greedy(PROMPT, 5)
    assert events[-1].stats.cached_tokens == 6


@pytest.mark.parametrize("at", [1, 8, 9, 15])
def test_a_snapshot_on_the_way(at):
    prompt = list(range(16))
    session = FakeSession()
    kept = []
    params = SamplingParams(0.0, max_tokens=4)
    events = list(
        generate(
            session,
            prompt,
            params,
            tokenizer=TOKENIZER,
            snapshot_at=(at,),
            keep_snapshot=kept.append,
        )
    )
    assert [snapshot.length for snapshot in kept] == [at]
    assert all_tokens(events) == greedy(prompt, 4)
    session.restore(kept[0])
    again = list(generate(session, prompt, params, tokenizer=TOKENIZER, cached_tokens=at))
    assert all_tokens(again) == all_tokens(events)


@pytest.mark.parametrize("at", [0, 16, 17])
def test_no_snapshot_elsewhere(at):
    kept = []
    list(
        generate(
            FakeSession(),
            list(range(16)),
            SamplingParams(0.0, max_tokens=1),
            tokenizer=TOKENIZER,
            snapshot_at=(at,),
            keep_snapshot=kept.append,
        )
    )
    assert kept == []


def test_a_seed_gives_the_same_answer_twice():
    def run(seed):
        params = SamplingParams(0.8, top_p=0.9, seed=seed, max_tokens=20)
        return all_tokens(generate(FakeSession(), PROMPT, params, tokenizer=TOKENIZER))

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_penalties_see_the_prompt_and_the_answer():
    params = SamplingParams(0.0, repetition_penalty=1e6, max_tokens=40)
    session = FakeSession(TOKENIZER.size, 100)
    tokens = all_tokens(generate(session, PROMPT, params, tokenizer=TOKENIZER))
    assert len(set(tokens)) == 40
    assert not set(tokens) & set(PROMPT)


def test_broken_logits_end_the_generation():
    class Broken(FakeSession):
        def _logits(self, digest, length):
            return np.full(self.vocab_size, np.nan, dtype=np.float32)

    with pytest.raises(BuildError, match="the executor produced logits"):
        list(generate(Broken(), PROMPT, GREEDY, tokenizer=TOKENIZER))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 319), min_size=1, max_size=10),
    st.lists(st.integers(0, 319), min_size=1, max_size=MAX_VERIFY),
    st.data(),
)
def test_the_fake_session_keeps_the_contract(prompt, drafted, data):
    """The other tests stand on it: verify and commit, snapshot and restore equal single steps."""
    n = data.draw(st.integers(0, len(drafted)))
    session, plain = FakeSession(), FakeSession()
    for token in prompt:
        session.step([token])
    for token in prompt[:-1]:
        plain.step([token])
    expected = [plain.step([token]).logits[0] for token in [prompt[-1], *drafted]]
    taken = session.snapshot()
    rows = session.verify(drafted).logits
    np.testing.assert_array_equal(rows, expected[1:])
    session.commit(n)
    assert session.committed == [*prompt, *drafted[:n]]
    session.restore(taken)
    np.testing.assert_array_equal(session.step(drafted[:1]).logits[0], expected[1])
