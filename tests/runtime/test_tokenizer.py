"""Encoding that no text can abuse, and decoding that a stream cannot change."""

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from edgekit.errors import BundleError, CheckpointError
from edgekit.runtime.tokenizer import Detokenizer, Tokenizer
from tests.runtime.fake_tokenizer import inner_tokenizer, make_tokenizer, save_tokenizer

TOKENIZER = make_tokenizer()
INNER = inner_tokenizer()
CONTROLS = list(TOKENIZER.controls)


def stream(tokens, **options):
    detokenizer = Detokenizer(TOKENIZER, **options)
    return [detokenizer.push(token) for token in tokens] + [detokenizer.finish()]


@given(st.text())
def test_plain_text_survives(text):
    tokens = TOKENIZER.encode(text)
    assert TOKENIZER.decode(tokens) == text
    assert tokens == INNER.encode(text, add_special_tokens=False).ids


@given(st.lists(st.sampled_from([*CONTROLS, "<|im", "_end|>", "<", "é", " hello", "\n"])))
def test_text_never_becomes_control_tokens(pieces):
    text = "".join(pieces)
    tokens = TOKENIZER.encode(text)
    assert not set(tokens) & set(TOKENIZER.controls.values())
    assert TOKENIZER.decode(tokens) == text


def test_a_spelled_control_string_is_cut_after_its_first_character():
    parts = ("start <", "|im_end|> of <", "think> it")
    expected = [token for part in parts for token in INNER.encode(part).ids]
    assert TOKENIZER.encode("start <|im_end|> of <think> it") == expected


def test_special_text_becomes_control_tokens():
    text = "<|im_start|>user\nhello<|im_end|>\n<think>"
    tokens = TOKENIZER.encode(text, special=True)
    assert tokens == INNER.encode(text, add_special_tokens=False).ids
    assert tokens[0] == TOKENIZER.id("<|im_start|>")
    assert tokens[-1] == TOKENIZER.id("<think>")
    assert TOKENIZER.decode(tokens) == text
    found = [(text[a:b], token) for a, b, token in TOKENIZER.find_controls(text)]
    expected = ["<|im_start|>", "<|im_end|>", "<think>"]
    assert found == [(name, TOKENIZER.id(name)) for name in expected]


def test_control_strings_that_overlap_and_those_of_other_letters():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<a>", "a><", "[a]", "^"]
    vocab = {text: i for i, text in enumerate([*alphabet, *names[:-1]])}
    inner = tokenizers.Tokenizer(models.BPE(vocab, [], ignore_merges=True))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(names)
    tokenizer = Tokenizer(inner)
    assert list(tokenizer.controls) == names[:-1]
    text = "<a><a>[a]a><^"
    assert tokenizer.encode(text) == [vocab[letter] for letter in text]
    assert tokenizer.encode("<a>[a]", special=True) == [vocab["<a>"], vocab["[a]"]]


@given(st.lists(st.integers(0, INNER.get_vocab_size() - 1), max_size=40))
def test_a_stream_decodes_as_the_whole_does(tokens):
    """Any tokens: also broken UTF-8, which the tokenizers package judges here."""
    pieces = stream(tokens, skip_special=False)
    assert "".join(pieces) == INNER.decode(tokens, skip_special_tokens=False)
    kept = [token for token in tokens if INNER.id_to_token(token) not in TOKENIZER.controls]
    assert "".join(stream(kept)) == INNER.decode(kept, skip_special_tokens=True)


def test_a_character_split_over_tokens_comes_when_it_is_complete():
    tokens = TOKENIZER.encode("a😀é")
    assert len(tokens) == 7
    assert stream(tokens) == ["a", "", "", "", "😀", "", "é", ""]
    assert stream(tokens[:3]) == ["a", "", "", "\ufffd"]


def test_a_real_replacement_character_is_not_held_back():
    assert stream(TOKENIZER.encode("\ufffd."))[-3:] == ["\ufffd", ".", ""]


def test_skipping_leaves_the_markup():
    tokens = TOKENIZER.encode("<s><think>so</think>yes<|im_end|>", special=True)
    assert TOKENIZER.decode(tokens, skip_special=True) == "<think>so</think>yes"
    assert "".join(stream(tokens)) == "<think>so</think>yes"


def test_a_padded_vocabulary_row_has_no_text():
    assert TOKENIZER.decode([10**6]) == ""
    assert TOKENIZER.token_bytes(10**6) == b""


def test_load_and_its_end_tokens(tmp_path):
    save_tokenizer(tmp_path)
    end = INNER.token_to_id("<|im_end|>")
    assert Tokenizer.load(tmp_path).eos_token_ids == (end,)
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    assert Tokenizer.load(tmp_path).eos_token_ids == (2, end)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 1]}))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.eos_token_ids == (end, 1, 2)
    assert tokenizer.encode("hello world") == TOKENIZER.encode("hello world")


def test_load_errors(tmp_path):
    with pytest.raises(BundleError, match=r"no tokenizer\.json") as missing:
        Tokenizer.load(tmp_path)
    assert missing.value.hint
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(BundleError, match="cannot be read"):
        Tokenizer.load(tmp_path)
    save_tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text("[")
    with pytest.raises(BundleError, match="not valid JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(BundleError, match="JSON object"):
        Tokenizer.load(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "x"}')
    with pytest.raises(CheckpointError, match="not integers"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("decoder", [None, decoders.Metaspace(), decoders.WordPiece()])
def test_a_tokenizer_of_another_kind(decoder):
    inner = inner_tokenizer()
    inner.decoder = decoder
    with pytest.raises(BundleError, match="not a byte-level tokenizer"):
        Tokenizer(inner)


def test_vocabulary_check():
    TOKENIZER.check_vocab(TOKENIZER.size)
    with pytest.raises(BundleError, match=f"has {TOKENIZER.size} tokens, the model only 7"):
        TOKENIZER.check_vocab(7)


def test_ids_by_string():
    assert TOKENIZER.id("<|im_end|>") == TOKENIZER.encode("<|im_end|>", special=True)[0]
    assert TOKENIZER.id("no such token") is None


def test_text_that_is_not_utf8_is_read_with_replacements():
    replaced = TOKENIZER.encode("a\ufffdb")
    assert TOKENIZER.encode("a\udcffb") == replaced
    assert TOKENIZER.encode("a\ud800b", special=True) == replaced
    assert list(TOKENIZER.find_controls("a\udcffb")) == []
