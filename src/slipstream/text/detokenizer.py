"""Token ids to text while they arrive, in time linear in their bytes. Not here: stop strings (stop)."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from slipstream.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Turn a stream of tokens into text that never has to be taken back.

    At most three bytes are withheld, the head of a character whose rest may follow; bytes that can no longer become
    a character turn into U+FFFD at once. However the stream is cut into runs, the pieces plus `flush` join to
    `Tokenizer.decode` of all its ids. Ids outside the vocabulary have no text.

    Args:
        tokenizer: gives each token's bytes.
        skip_special_tokens: leave special tokens out of the text.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Sequence[int]) -> list[str]:
        """Return one piece per token: the text that is certain once the token is known, often empty."""
        decode, bytes_of, skipped = self._decoder.decode, self._tokenizer.token_bytes, self._skipped
        return ["" if id_ in skipped else decode(bytes_of(id_)) for id_ in token_ids]

    def flush(self) -> str:
        """Return what an unfinished character at the end of the stream amounts to, and start afresh."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
