"""Encoding equals the library's, plain encoding never makes a control token, broken checkpoints are named."""

from __future__ import annotations

import json
import threading

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, processors

from slipstream.base.errors import CheckpointError, RequestError
from slipstream.text.tokenizer import Tokenizer
from support.profiles import relaxed
from support.tiny_text import CONTROL, SPECIAL, backend_json, tiny_folder, write_tiny_text

TOKENIZER = Tokenizer.load(tiny_folder())
REFERENCE = tokenizers.Tokenizer.from_str(backend_json())

pieces = st.one_of(st.sampled_from(CONTROL), st.text(alphabet="]~!b[e<m:think>/ \n", max_size=6), st.text(max_size=6))
texts = st.lists(pieces, max_size=8).map("".join)
ids_of_vocabulary = st.lists(st.integers(0, TOKENIZER.vocab_size + 5), max_size=40)


@relaxed
@given(texts)
def test_encode_and_decode_equal_the_library(text):
    ids = TOKENIZER.encode(text)
    assert ids == REFERENCE.encode(text, add_special_tokens=False).ids
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_other_threads_run_while_a_long_text_is_encoded():
    """A call that holds the interpreter lock lets another thread take one or two turns, before and after it."""
    text = "the quick brown fox " * 100_000
    num_turns, is_over = 0, threading.Event()

    def take_turns():
        nonlocal num_turns
        while not is_over.wait(0.001):
            num_turns += 1

    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        before = num_turns
        TOKENIZER.encode(text)
        during = num_turns - before
    finally:
        is_over.set()
        thread.join()
    assert during > 10


@pytest.mark.parametrize("text", ["", " ", "a", "é🙂", "]~b]", "x" * 1000])
@pytest.mark.parametrize("add_special_tokens", [False, True])
def test_encoding_equals_the_librarys_call_for_one_text(text, add_special_tokens):
    backend = tokenizers.Tokenizer.from_str(backend_json())
    backend.post_processor = processors.TemplateProcessing(
        single="]~!b[ $A", special_tokens=[("]~!b[", backend.token_to_id("]~!b["))]
    )
    expected = backend.encode(text, add_special_tokens=add_special_tokens).ids
    assert Tokenizer(backend).encode(text, add_special_tokens=add_special_tokens) == expected


def test_the_longest_token_bounds_every_text():
    lengths = [len(TOKENIZER.token_bytes(id_)) for id_ in range(TOKENIZER.vocab_size)]
    assert TOKENIZER.max_token_bytes == max(lengths) == len("]<]start of image[>[")


@relaxed
@given(texts)
def test_a_text_has_no_fewer_tokens_than_its_bytes_need(text):
    assert len(text.encode()) <= len(TOKENIZER.encode(text)) * TOKENIZER.max_token_bytes


@relaxed
@given(ids_of_vocabulary, st.booleans())
def test_decode_of_any_ids_equals_the_library(ids, skip):
    assert TOKENIZER.decode(ids, skip_special_tokens=skip) == REFERENCE.decode(ids, skip_special_tokens=skip)


@relaxed
@given(texts)
def test_plain_text_has_no_control_token_and_comes_back(text):
    ids = TOKENIZER.encode_plain(text)
    assert set(ids).isdisjoint(TOKENIZER.control_ids.values())
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


@relaxed
@given(texts)
def test_a_marked_text_without_a_mark_in_its_control_tokens_encodes_as_it_stands(text):
    """Splitting at control tokens ourselves finds what the library finds: one stand-in far away changes nothing."""
    marked = text + "\n\U000f0000"
    plain = text + "\n?"
    assert TOKENIZER.encode_marked(marked, {0xF0000: "?"}) == REFERENCE.encode(plain, add_special_tokens=False).ids


def test_lstrip_and_rstrip_tokens_are_split_as_the_library_does():
    backend = tokenizers.Tokenizer.from_str(backend_json())
    extra = tokenizers.AddedToken("<wide>", lstrip=True, rstrip=True, normalized=False)
    word = tokenizers.AddedToken("word", single_word=True, normalized=False)
    backend.add_special_tokens([extra, word])
    tokenizer = Tokenizer(backend, eos_ids=(1,))
    for text in ("a  <wide>  b", "<wide>", " <wide><wide> x", "word sword word", "words word"):
        marked = tokenizer.encode_marked(text + "\n\U000f0000", {0xF0000: "?"})
        assert marked == backend.encode(text + "\n?", add_special_tokens=False).ids


def test_a_vocabulary_that_merges_into_a_control_token_is_spelled_out():
    """`ignore_merges` makes a word that is a vocabulary entry one token: even then user text is not a control token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: place for place, character in enumerate(alphabet)} | {"STOP": 256}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["STOP"])
    tokenizer = Tokenizer(backend, eos_ids=(256,))
    assert tokenizer.encode("STOP") == [256]
    assert len(tokenizer.encode_plain("STOP")) == 4
    assert tokenizer.decode(tokenizer.encode_plain("STOP")) == "STOP"


def test_a_control_token_without_another_spelling_is_refused():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["!"])
    with pytest.raises(RequestError, match="no other spelling"):
        Tokenizer(backend, eos_ids=(0,)).encode_plain("hi!")


def test_facts_of_the_tiny_tokenizer():
    assert set(TOKENIZER.control_ids) == set(CONTROL)
    assert {TOKENIZER.token(id_) for id_ in TOKENIZER.special_ids} == SPECIAL
    assert TOKENIZER.eos_token_ids == (TOKENIZER.control_ids["[e~["],)
    assert TOKENIZER.vocab_size == max(TOKENIZER.control_ids.values()) + 1
    assert TOKENIZER.named_tokens == {"bos_token": "]~!b[", "eos_token": "[e~["}
    assert TOKENIZER.token(TOKENIZER.vocab_size) is None
    assert TOKENIZER.token_bytes(-1) == b""


@pytest.mark.parametrize("encode", [TOKENIZER.encode, TOKENIZER.encode_plain])
def test_a_lone_surrogate_is_a_request_error(encode):
    with pytest.raises(RequestError, match="surrogate"):
        encode("a\ud800b")


def test_end_token_falls_back_to_its_name_and_then_to_the_family(tmp_path):
    folder = write_tiny_text(tmp_path / "model")
    eos = TOKENIZER.control_ids["[e~["]
    (folder / "generation_config.json").unlink()
    assert Tokenizer.load(folder).eos_token_ids == (eos,)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "]~b]"}))
    assert Tokenizer.load(folder).eos_token_ids == (TOKENIZER.control_ids["]~b]"],)
    (folder / "tokenizer_config.json").unlink()
    assert Tokenizer.load(folder).eos_token_ids == (eos,)


def test_a_tokenizer_without_an_end_is_refused():
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    with pytest.raises(CheckpointError, match="no end token"):
        Tokenizer(backend)


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path):
    folder = write_tiny_text(tmp_path / "model")
    backend = tokenizers.Tokenizer.from_str(backend_json())
    backend.enable_truncation(2)
    backend.enable_padding(length=50)
    backend.save(str(folder / "tokenizer.json"))
    assert len(Tokenizer.load(folder).encode("hello world")) == len(TOKENIZER.encode("hello world"))


def damage_json(folder):
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text[: len(text) // 2])


def damage_model(folder):
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["type"] = "Unheard"
    (folder / "tokenizer.json").write_text(json.dumps(document))


def damage_decoder(folder):
    document = json.loads((folder / "tokenizer.json").read_text())
    document["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (folder / "tokenizer.json").write_text(json.dumps(document))


def damage_added(folder):
    entry = {"content": "other", "special": True}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"341": entry}}))


def damage_added_far(folder):
    entry = {"content": "far away", "special": True}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"9999": entry}}))


def damage_added_shape(folder):
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"x": 1}}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_json, "not complete JSON"),
        (damage_model, "not a readable tokenizer"),
        (damage_decoder, "only byte-level"),
        (damage_added, "take both files from one checkpoint"),
        (damage_added_far, "vocabulary does not reach"),
        (damage_added_shape, "malformed"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    ],
)
def test_a_damaged_checkpoint_says_what_is_wrong(tmp_path, damage, says):
    folder = write_tiny_text(tmp_path / "model")
    damage(folder)
    with pytest.raises(CheckpointError, match=says):
        Tokenizer.load(folder)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="not a folder"):
        Tokenizer.load(tmp_path / "nothing")


def test_tokens_that_only_the_configuration_adds_are_added(tmp_path):
    folder = write_tiny_text(tmp_path / "model")
    added = {
        str(TOKENIZER.vocab_size): {"content": "<new>", "special": False},
        str(TOKENIZER.control_ids["<tool_call>"]): {"content": "<tool_call>", "special": True},
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.control_ids["<new>"] == TOKENIZER.vocab_size
    assert tokenizer.control_ids["<tool_call>"] in tokenizer.special_ids
    assert tokenizer.encode("a<new>b")[1] == TOKENIZER.vocab_size
