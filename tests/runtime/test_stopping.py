"""Stop strings: any division of the stream gives the same text."""

from hypothesis import given
from hypothesis import strategies as st

from edgekit.runtime.stopping import PartialMatch, StopStrings


def run(stops, chunks):
    stopper = StopStrings(stops)
    shown = [stopper.push(chunk) for chunk in chunks]
    if stopper.matched is None:
        shown.append(stopper.finish())
    return shown, stopper.matched


def slow(stops, text):
    """One character at a time, looking back at everything."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end - len(stop)], stop
    return text, None


LETTERS = st.text("ab<\n", max_size=14)
STOPS = st.lists(st.text("ab<\n", min_size=1, max_size=4), max_size=4)


@given(STOPS, st.lists(LETTERS, max_size=8))
def test_any_division_is_cut_like_the_whole(stops, chunks):
    shown, matched = run(stops, chunks)
    assert ("".join(shown), matched) == slow(stops, "".join(chunks))


@given(STOPS, st.lists(LETTERS, max_size=8))
def test_nothing_is_held_that_cannot_start_a_stop_string(stops, chunks):
    stopper = StopStrings(stops)
    given_text = shown = ""
    for chunk in chunks:
        given_text += chunk
        shown += stopper.push(chunk)
        if stopper.matched is not None:
            break
        held = given_text[len(shown) :]
        assert given_text.startswith(shown)
        assert not held or any(stop.startswith(held) for stop in stops)


def test_a_stop_string_across_chunks_never_shows():
    shown, matched = run(["User:"], ["Hello Us", "ed. U", "se", "r: and more"])
    assert shown == ["Hello ", "Used. ", "", ""]
    assert matched == "User:"


def test_a_false_start_is_shown_at_the_end():
    shown, matched = run(["\n\n"], ["line\n"])
    assert shown == ["line", "\n"]
    assert matched is None


def test_the_first_complete_one_wins():
    assert run(["abcd", "bc"], ["abcd"]) == (["a"], "bc")
    assert run(["bc", "abc"], ["xabc"]) == (["x"], "abc")
    assert run(["a", "ab"], ["ab"]) == ([""], "a")


def test_nothing_after_a_match():
    stopper = StopStrings(["."])
    assert stopper.push("a.b") == "a"
    assert stopper.push("c") == ""
    assert stopper.finish() == ""


def test_no_stop_strings():
    assert run([], ["a", "", "b"]) == (["a", "", "b", ""], None)


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.text("ab", max_size=10))
def test_partial_match(patterns, text):
    ends = [
        n for n in range(1, len(text) + 1) for p in patterns if p[:n] == text[-n:] and p != p[:n]
    ]
    assert PartialMatch(patterns).length(text) == max(ends, default=0)
