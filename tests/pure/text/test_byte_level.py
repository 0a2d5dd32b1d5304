"""The byte alphabet is the library's, and a bijection."""

from __future__ import annotations

from tokenizers import pre_tokenizers

from slipstream.text.byte_level import byte_alphabet, token_bytes


def test_alphabet_is_a_bijection_of_bytes():
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_alphabet_is_the_one_of_the_library():
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    ((spelled, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é \n\x7f")
    assert token_bytes(spelled) == "é \n\x7f".encode()


def test_an_entry_outside_the_alphabet_is_its_own_utf8():
    assert token_bytes("Ġa") == b" a"
    assert token_bytes("start of image") == b"start of image"
    assert token_bytes("世") == "世".encode()
