"""Text to token ids and back: the one door to the tokenizer library.

Not here: chat templates (chat_template), text from a running stream (detokenizer).

A *control token* is any entry of the tokenizer's added vocabulary: turn markers, think tags, tool tags. `encode`
reads their strings in the text as control tokens; `encode_plain` never does; `encode_marked` does so only for the
part of a rendered prompt that the chat template wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from slipstream.base.errors import CheckpointError, RequestError
from slipstream.text.byte_level import token_bytes
from slipstream.text.checkpoint_files import (
    FAMILY_EOS,
    eos_token_ids,
    named_tokens,
    read_object,
    read_optional_object,
    read_text,
)


class Tokenizer:
    """A byte-level BPE tokenizer with its control tokens; safe to use from several threads.

    Args:
        backend: the library's tokenizer; its decoder must be byte-level.
        named: tokens with a name (`bos_token`, …) as text, for templates.
        eos_ids: the model's own end tokens; empty means the named `eos_token`, else the family's.

    Attributes:
        max_token_bytes: bytes of the longest token.

    Raises:
        CheckpointError: the decoder is not byte-level, or there is no end token.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        named: Mapping[str, str] | None = None,
        eos_ids: Sequence[int] = (),
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._plain = tokenizers.Tokenizer(backend.model)
        if backend.normalizer is not None:
            self._plain.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            self._plain.pre_tokenizer = backend.pre_tokenizer
        added = backend.get_added_tokens_decoder()
        self.named_tokens: dict[str, str] = dict(named or {})
        self.control_ids: dict[str, int] = {token.content: id_ for id_, token in added.items()}
        self.special_ids = frozenset(id_ for id_, token in added.items() if token.special)
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        # A byte-level entry has one character per byte; an added one is text, whose bytes are at least as many.
        longest = max(map(len, vocabulary), default=1)
        self.max_token_bytes = max(longest, *(len(token.content.encode()) for token in added.values()), 1)
        self.eos_token_ids = self._resolve_eos(tuple(eos_ids))
        self._control_set = frozenset(self.control_ids.values())
        self._control_pattern, self._control_order = _control_pattern(added)
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path | str) -> Tokenizer:
        """Load the tokenizer of a checkpoint folder.

        Args:
            folder: holds tokenizer.json, and usually tokenizer_config.json and generation_config.json.

        Raises:
            CheckpointError: a file is missing, half-written, or of a kind that is not served.
        """
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not folder.is_dir():
            raise CheckpointError(f"{folder} is not a folder: give the folder of a checkpoint")
        document = read_text(path)
        tokenizer_config = read_optional_object(folder / "tokenizer_config.json")
        _check_decoder(path, read_object(path))
        try:
            backend = tokenizers.Tokenizer.from_str(document)
        except Exception as error:
            raise CheckpointError(f"{path} is not a readable tokenizer ({error}): fetch the file again") from error
        _add_configured_tokens(backend, tokenizer_config, path)
        return cls(backend, named=named_tokens(tokenizer_config), eos_ids=eos_token_ids(folder))

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text in which strings of control tokens ARE control tokens.

        Args:
            text: trusted text: a prompt that the caller rendered, or a template's own words.
            add_special_tokens: also apply the tokenizer's own prefix and suffix, if it has any.

        Raises:
            RequestError: the text holds a lone surrogate, which no encoding can represent.
        """
        return _encode(self._backend, text, add_special_tokens)

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of a text in which nothing is a control token.

        Raises:
            RequestError: the text holds a lone surrogate, or cannot be spelled without a control token.
        """
        ids = _encode(self._plain, text, False)
        if self._control_set.isdisjoint(ids):
            return ids
        return [part for id_ in ids for part in self._spell_out(id_)]

    def encode_marked(self, text: str, restore: Mapping[int, str]) -> list[int]:
        """Return the ids of a rendered prompt whose user characters are marked.

        Args:
            text: the prompt; in user text, every character that could take part in a control token is a stand-in.
            restore: stand-in code point -> the character it stands for.
        """
        if not any(chr(mark) in text for mark in restore):
            return self.encode(text)
        ids: list[int] = []
        end = 0
        for match in self._control_pattern.finditer(text):
            ids += self._encode_piece(text[end : match.start()], restore)
            ids.append(self._control_order[(match.lastindex or 1) - 1])
            end = match.end()
        return ids + self._encode_piece(text[end:], restore)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens; invalid bytes become U+FFFD, ids outside the vocabulary nothing."""
        parts = (self.token_bytes(id_) for id_ in token_ids if not (skip_special_tokens and id_ in self.special_ids))
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token; empty when the id is outside the vocabulary."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = token_bytes(self.token(token_id) or "")
        return known

    def token(self, token_id: int) -> str | None:
        """Return the vocabulary entry of an id, or None outside the vocabulary."""
        if not 0 <= token_id < self.vocab_size:
            return None
        return self._backend.id_to_token(token_id)

    def _encode_piece(self, piece: str, restore: Mapping[int, str]) -> list[int]:
        return self.encode_plain(piece.translate(restore)) if piece else []

    def _spell_out(self, token_id: int) -> list[int]:
        if token_id not in self._control_set:
            return [token_id]
        letters = self.token_bytes(token_id).decode("utf-8", "replace")
        ids = [id_ for letter in letters for id_ in _encode(self._plain, letter, False)]
        if not self._control_set.isdisjoint(ids):
            raise RequestError(f"the text {letters!r} is a control token of this model and has no other spelling")
        return ids

    def _resolve_eos(self, eos_ids: tuple[int, ...]) -> tuple[int, ...]:
        if eos_ids:
            return eos_ids
        for text in (self.named_tokens.get("eos_token"), FAMILY_EOS):
            id_ = None if text is None else self._backend.token_to_id(text)
            if id_ is not None:
                return (id_,)
        raise CheckpointError(
            "the checkpoint names no end token: set eos_token_id in generation_config.json, or eos_token in "
            "tokenizer_config.json"
        )


def _encode(backend: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    try:
        # The call for one text holds the interpreter lock to its end; the call for many lets other threads run, and
        # this one keeps no offsets, which take most of the memory.
        return backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    except (UnicodeEncodeError, TypeError) as error:
        raise RequestError("the text holds a lone surrogate code point: send well-formed Unicode") from error


def _control_pattern(added: dict[int, tokenizers.AddedToken]) -> tuple[re.Pattern[str], list[int]]:
    """Return a pattern that finds what the library finds (leftmost, then longest), and the id of each group."""
    branches = []
    ordered = sorted(added.items(), key=lambda item: len(item[1].content), reverse=True)
    for _, token in ordered:
        body = re.escape(token.content)
        if token.single_word:
            body = rf"(?<!\w){body}(?!\w)"
        branches.append((r"\s*" if token.lstrip else "") + f"({body})" + (r"\s*" if token.rstrip else ""))
    return re.compile("|".join(branches) or r"(?!)"), [id_ for id_, _ in ordered]


def _check_decoder(path: Path, document: dict[str, Any]) -> None:
    decoder = document.get("decoder")
    steps = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else [decoder]
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    if "ByteLevel" not in kinds or not set(kinds) <= {"ByteLevel", "Fuse"}:
        raise CheckpointError(
            f"{path}: decoder {json.dumps(decoder)[:120]} is not served: only byte-level tokenizers are, "
            "as the whole family has them"
        )


def _add_configured_tokens(backend: tokenizers.Tokenizer, tokenizer_config: dict[str, Any], path: Path) -> None:
    """Apply `added_tokens_decoder`: tokens that tokenizer.json lacks, and marks of special ones."""
    configured = tokenizer_config.get("added_tokens_decoder") or {}
    try:
        entries = sorted((int(id_), dict(entry)) for id_, entry in configured.items())
        for id_, entry in entries:
            token = tokenizers.AddedToken(**{key: entry[key] for key in _ADDED_FIELDS if key in entry})
            known = backend.id_to_token(id_)
            if known not in (None, token.content):
                raise CheckpointError(
                    f"{path}: id {id_} is {known!r}, but tokenizer_config.json says {token.content!r}: "
                    "take both files from one checkpoint"
                )
            if known is None or token.special:
                (backend.add_special_tokens if token.special else backend.add_tokens)([token])
            if backend.token_to_id(token.content) != id_:
                raise CheckpointError(
                    f"{path.with_name('tokenizer_config.json')}: {token.content!r} cannot have id {id_}, because "
                    "the vocabulary does not reach that far: take both files from one checkpoint"
                )
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise CheckpointError(
            f"{path.with_name('tokenizer_config.json')}: added_tokens_decoder is malformed ({error})"
        ) from error


_ADDED_FIELDS = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
