"""The byte alphabet of byte-level BPE: which byte each character of a vocabulary entry stands for."""

from __future__ import annotations

import functools


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """Return character -> byte, the alphabet that GPT-2 introduced.

    Bytes that print in Latin-1 stand for themselves; the others take the code points from 256 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in sorted(printable)}
    alphabet.update({chr(256 + place): byte for place, byte in enumerate(hidden)})
    return alphabet


def token_bytes(token: str) -> bytes:
    """Return the bytes of a vocabulary entry.

    An entry with a character outside the alphabet (a control token that holds a space, say) is its own UTF-8,
    which is what the tokenizer's own decoder does.
    """
    alphabet = byte_alphabet()
    try:
        return bytes([alphabet[character] for character in token])
    except KeyError:
        return token.encode("utf-8")
