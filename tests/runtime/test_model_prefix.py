"""Reuse of what was computed: always the tokens of a fresh model, and as few steps as can be."""

import dataclasses
import json
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import BundleError, DoesNotFitError, UsageError
from edgekit.runtime.events import SamplingParams
from edgekit.runtime.model import sampling_defaults
from tests.runtime.fake_model import GREEDY, Says, make_model

Q1 = [{"role": "user", "content": "hello"}]
Q2 = [*Q1, {"role": "assistant", "content": "an answer"}, {"role": "user", "content": "question"}]
Q3 = [*Q2, {"role": "assistant", "content": "so"}, {"role": "user", "content": "again"}]
OTHER = [{"role": "user", "content": "the other question"}]


def tokens_of(events):
    return [token for event in events for token in event.tokens]


def fresh(prompt, params=GREEDY):
    """The answer of a model that has seen nothing before."""
    return tokens_of(make_model().generate(prompt, params))


def ask(model, messages, **options):
    """Checks the answer against a fresh model's; returns how many tokens were reused."""
    events = list(model.chat(messages, **options))
    assert tokens_of(events) == tokens_of(make_model().chat(messages, **options))
    assert list(model.committed) == model.session.committed
    return events[-1].stats.cached_tokens


def boundary(messages):
    return make_model().encode_chat(messages).boundary


def test_a_longer_prompt_extends_in_place():
    model = make_model()
    first = tokens_of(model.generate([1, 2, 3]))
    prompt = [1, 2, 3, *first, 7, 8]
    events = list(model.generate(prompt))
    assert events[-1].stats.cached_tokens == 3 + len(first) - 1
    assert tokens_of(events) == fresh(prompt)
    assert model.session.restored == []
    assert model.session.resets == 0


def test_another_prompt_starts_over():
    model = make_model()
    list(model.generate([1, 2, 3]))
    events = list(model.generate([1, 9, 3]))
    assert events[-1].stats.cached_tokens == 0
    assert tokens_of(events) == fresh([1, 9, 3])


def test_the_same_prompt_again_starts_over_without_a_snapshot():
    """The committed tokens cannot be cut back, and one token at least must run."""
    model = make_model()
    params = SamplingParams(0.0, max_tokens=0)
    list(model.generate([1, 2, 3], params))
    assert model.committed == (1, 2, 3)
    events = list(model.generate([1, 2, 3]))
    assert events[-1].stats.cached_tokens == 0
    assert tokens_of(events) == fresh([1, 2, 3])


def test_a_conversation_goes_on_from_the_last_question():
    model = make_model()
    assert ask(model, Q1) == 0
    assert ask(model, Q2) == boundary(Q1)
    assert ask(model, Q3) == boundary(Q2)
    assert model.session.resets == 0


def test_answering_again_goes_back_to_the_question():
    model = make_model()
    ask(model, Q1)
    ask(model, Q2)
    assert ask(model, Q2) == boundary(Q2)
    assert ask(model, Q2) == boundary(Q2)


def test_undoing_goes_back_further():
    model = make_model()
    for messages in (Q1, Q2, Q3):
        ask(model, messages)
    assert ask(model, Q1) == boundary(Q1)
    # What came after that question is overwritten in the session; the store has it.
    assert ask(model, Q3) == boundary(Q3)


def test_without_thinking_an_answer_is_extended_in_place():
    model = make_model(script=Says("an answer", "so"))
    events = list(model.chat(Q1, thinking=False))
    assert model.tokenizer.decode(tokens_of(events)) == "an answer<|im_end|>"
    committed = model.committed
    events = list(model.chat(Q2, thinking=False))
    assert model.tokenizer.decode(tokens_of(events)) == "so<|im_end|>"
    assert events[-1].stats.cached_tokens == len(committed)
    assert model.session.restored == []


def test_a_new_conversation_starts_over_and_the_old_one_is_found_again():
    model = make_model()
    ask(model, Q1)
    assert ask(model, OTHER) == 0
    assert model.session.resets == 1
    assert ask(model, Q2) == boundary(Q1)


def test_without_a_store_a_new_conversation_is_all_there_is():
    model = make_model(prefix_bytes=0)
    ask(model, Q1)
    assert ask(model, OTHER) == 0
    assert ask(model, Q2) == 0


def test_a_system_prompt_is_shared_by_conversations_and_sessions():
    system = {"role": "system", "content": "You answer the question. " * 8}
    first, second = make_model(), make_model()
    second.prefixes = first.prefixes
    ask(first, [system, *Q1])
    cached = ask(second, [system, *OTHER])
    turn = make_model().encode_chat([system, *OTHER]).turns[0]
    assert cached == turn
    assert ask(first, [system, *Q3]) >= turn


@pytest.mark.parametrize("budget", [0, 100, 1000, 4000])
def test_the_store_keeps_its_budget(budget):
    model = make_model(prefix_bytes=budget)
    messages = []
    for i in range(8):
        messages = [*messages, {"role": "user", "content": f"question {i}"}]
        ask(model, messages)
        assert model.prefixes.stats().nbytes <= budget
        assert model.prefixes.stats().nbytes == sum(e.nbytes for e in model.prefixes.entries())
        messages = [*messages, {"role": "assistant", "content": "an answer"}]


@pytest.mark.parametrize("events_read", [0, 1, 2, 4])
def test_closing_early_keeps_what_was_computed(events_read):
    model = make_model()
    ask(model, Q1)
    stream = model.chat(Q2)
    read = [next(stream) for _ in range(events_read)]
    stream.close()
    assert list(model.committed) == model.session.committed
    prompt = model.encode_chat(Q2).tokens
    expected = [*prompt, *tokens_of(read)]
    if any(event.tokens for event in read):
        assert list(model.committed) == expected[:-1]
        assert ask(model, Q2) == boundary(Q2)
    else:
        assert ask(model, Q2) >= boundary(Q1)


def test_an_abandoned_iterator_is_like_a_closed_one():
    model = make_model()
    for event in model.chat(Q1):
        if event.tokens:
            break
    assert ask(model, Q2) == boundary(Q1)


def test_a_second_generation_ends_the_first():
    model = make_model()
    first = model.chat(Q1)
    while not next(first).tokens:
        pass
    assert ask(model, Q2) == boundary(Q1)
    committed = model.committed
    assert list(first) == []
    assert model.committed == committed == tuple(model.session.committed)


def test_the_first_does_not_touch_the_second():
    model = make_model()
    first, second = model.chat(Q1), model.chat(OTHER)
    while not next(first).tokens:
        pass
    started = next(second)
    assert list(first) == []
    tokens = [*started.tokens, *tokens_of(second)]
    assert tokens == tokens_of(make_model().chat(OTHER))
    assert list(model.committed) == model.session.committed


def test_a_prompt_as_long_as_a_snapshot():
    model = make_model()
    list(model.generate([1, 2, 3, 4], snapshot_at=(3,)))
    assert tokens_of(model.generate([1, 2, 3])) == fresh([1, 2, 3])


def test_a_generation_that_never_starts_changes_nothing():
    model = make_model()
    ask(model, Q1)
    committed = model.committed
    model.chat(OTHER).close()
    assert model.committed == committed
    assert ask(model, Q2) == boundary(Q1)


@pytest.mark.parametrize("fail_after", [0, 1, 2, 3, 6])
def test_after_a_failure_the_state_is_not_trusted(fail_after):
    model = make_model()
    ask(model, Q1)
    model.session.fail_after = fail_after
    with pytest.raises(KeyboardInterrupt):
        list(model.chat(Q2))
    model.session.fail_after = None
    assert list(model.committed) == model.session.committed
    assert ask(model, Q2) >= boundary(Q1)
    assert ask(model, Q3) == boundary(Q2)


def test_a_failure_without_snapshots_starts_over():
    model = make_model()
    model.session.fail_after = 1
    with pytest.raises(KeyboardInterrupt):
        list(model.generate([1, 2, 3]))
    model.session.fail_after = None
    assert model.committed == ()
    assert tokens_of(model.generate([1, 2, 3])) == fresh([1, 2, 3])


def test_a_prompt_that_does_not_fit_is_refused_at_once_and_changes_nothing():
    model = make_model(capacity=60)
    list(model.chat(Q1))
    committed = model.committed
    with pytest.raises(DoesNotFitError):
        model.generate(list(range(61)))
    with pytest.raises(UsageError):
        model.generate([1], SamplingParams(-1.0))
    assert model.committed == committed


def test_reset_and_close():
    model = make_model()
    ask(model, Q1)
    model.reset()
    assert model.committed == ()
    assert len(model.prefixes) == 0
    assert ask(model, Q1) == 0
    with model as same:
        assert same is model
    assert model.session.closed


def test_no_template_no_chat():
    model = make_model(template=None)
    assert tokens_of(model.generate([1, 2])) == fresh([1, 2])
    with pytest.raises(BundleError, match="no chat template"):
        model.chat(Q1)


def test_the_context_is_the_capacity():
    assert make_model(capacity=77).context == 77


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 2), min_size=1, max_size=12),
            st.integers(0, 4),
            st.sets(st.integers(0, 12), max_size=3),
            st.one_of(st.none(), st.integers(0, 3)),
            st.one_of(st.none(), st.integers(0, 6)),
        ),
        max_size=8,
    ),
    st.integers(0, 400),
)
def test_any_sequence_of_requests(requests, budget):
    """Prompts over three tokens share prefixes often; some are closed early, some fail. Two models
    with one store take turns."""
    one, other = make_model(prefix_bytes=budget), make_model()
    other.prefixes = one.prefixes
    for model, (prompt, count, snapshot_at, close_after, fail_after) in zip(
        cycle((one, other)), requests, strict=False
    ):
        params = SamplingParams(0.0, max_tokens=count)
        stream = model.generate(prompt, params, snapshot_at=snapshot_at)
        model.session.fail_after = fail_after
        produced = []
        try:
            for i, event in enumerate(stream):
                produced += event.tokens
                if i == close_after:
                    break
        except KeyboardInterrupt:
            pass
        stream.close()
        model.session.fail_after = None
        assert produced == fresh(prompt, params)[: len(produced)]
        assert list(model.committed) == model.session.committed
        assert model.prefixes.stats().nbytes <= budget


def test_sampling_defaults(tmp_path):
    assert sampling_defaults(tmp_path) == SamplingParams()
    path = tmp_path / "generation_config.json"
    path.write_text(
        json.dumps({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": None, "x": 1})
    )
    assert sampling_defaults(tmp_path) == SamplingParams(temperature=0.6, top_p=0.95)
    path.write_text(json.dumps({"do_sample": False, "temperature": 0.6, "repetition_penalty": 1.1}))
    assert sampling_defaults(tmp_path) == SamplingParams(temperature=0.0, repetition_penalty=1.1)
    for bad in ({"temperature": -1}, {"top_p": "high"}):
        path.write_text(json.dumps(bad))
        with pytest.raises(BundleError, match="impossible sampling"):
            sampling_defaults(tmp_path)


def test_the_package_exports_its_names_lazily():
    import edgekit.runtime as runtime

    assert {"load_model", "Model", "SamplingParams"} <= set(dir(runtime))
    assert dataclasses.is_dataclass(runtime.SamplingParams)
    assert callable(runtime.load_model)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = runtime.other
