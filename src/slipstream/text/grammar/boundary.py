"""Recognise the end of reasoning in a stream of tokens, whichever tokens spell it.

The marker is one control token as a rule, but a model may also spell it through ordinary text, cut anywhere. A
reader of the text cannot tell the two apart, so both count. Whether an answer begins inside reasoning follows from
the request's mode, never from looking at the prompt.
"""

from __future__ import annotations

from slipstream.base.errors import CheckpointError
from slipstream.text.grammar.bitmask import ALLOW_ALL, Mask, pack_tokens
from slipstream.text.tokenizer import Tokenizer

REASONING_END = "</mm:think>"
"""The end of reasoning in every tokenizer of the family."""

OVERRUN = -1
"""The state after a token that completes the marker and goes on: its rest would escape the grammar."""

_MAX_MARKER_BYTES = 255


class ReasoningEnd:
    """An automaton over tokens; its state is how much of the marker the text so far ends with.

    Args:
        tokenizer: gives each token's bytes.
        vocab_size: width of the model's logits.
        marker: the text that ends reasoning.
        eos_ids: ids that end an answer, which may not come before the marker; empty means the tokenizer's own.

    Raises:
        CheckpointError: a marker that cannot be followed.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        marker: str = REASONING_END,
        *,
        eos_ids: tuple[int, ...] = (),
    ) -> None:
        self._marker = marker.encode("utf-8")
        if not 0 < len(self._marker) <= _MAX_MARKER_BYTES:
            raise CheckpointError(f"the end of reasoning {marker!r} is not allowed: 1 to {_MAX_MARKER_BYTES} bytes are")
        self.vocab_size = vocab_size
        self.passed = len(self._marker)
        self._tokenizer = tokenizer
        self._fallback = _build_fallback(self._marker)
        self._eos_ids = eos_ids or tokenizer.eos_token_ids
        self._masks = self._build_masks()

    def advance(self, state: int, token: int) -> int:
        """Return the state after a token: below `passed` while reasoning goes on, `passed`, or OVERRUN.

        Args:
            state: 0 at the start of an answer; below `passed`.
            token: any id; ids outside the vocabulary have no text.
        """
        text = self._tokenizer.token_bytes(token)
        return 0 if not state and self._marker[0] not in text else self._walk(state, text)

    def mask(self, state: int) -> Mask:
        """Return what is allowed while reasoning: everything but end tokens and what would overrun the marker.

        Returns:
            [num_words] int32; shared, do not write.
        """
        return self._masks[state]

    def _walk(self, state: int, text: bytes) -> int:
        for place, byte in enumerate(text, 1):
            while state and self._marker[state] != byte:
                state = self._fallback[state]
            state += self._marker[state] == byte
            if state == self.passed:
                return self.passed if place == len(text) else OVERRUN
        return state

    def _build_masks(self) -> list[Mask]:
        last = self._marker[-1:]
        texts = ((id_, self._tokenizer.token_bytes(id_)) for id_ in range(self._tokenizer.vocab_size))
        suspects = [(id_, text) for id_, text in texts if last in text[:-1]]
        masks = [pack_tokens((), self.vocab_size) for _ in range(self.passed)]
        for state, mask in enumerate(masks):
            overrun = [id_ for id_, text in suspects if self._walk(state, text) == OVERRUN]
            mask[:] = ALLOW_ALL ^ pack_tokens({*overrun, *self._eos_ids}, self.vocab_size)
            mask.flags.writeable = False
        return masks


def _build_fallback(marker: bytes) -> list[int]:
    """Return, per state, the longest shorter state whose text it also ends with."""
    fallback = [0] * len(marker)
    length = 0
    for place in range(1, len(marker)):
        fallback[place] = length
        while length and marker[place] != marker[length]:
            length = fallback[length]
        length += marker[place] == marker[length]
    return fallback
