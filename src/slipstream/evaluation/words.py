"""From a suite's rows to token ids, through the tokenizer and chat template of the model under evaluation.

Also: whether that template is the one the suite was written for, and the symbols that n-gram models count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.base.errors import SlipstreamError
from slipstream.evaluation.suite import Dialogue, Header, Needle, Problem, Prompt, Text
from slipstream.frontend.processor import TextParts
from slipstream.text.messages import parse_messages
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.schema import parse_tools

NUM_BYTES = 256


def is_native(text: TextParts, header: Header) -> bool:
    """Return whether the model's chat template writes the suite's probe as its authors meant."""
    if text.template is None:
        return False
    try:
        written = text.template.render(parse_messages(_plain(header.probe)), add_generation_prompt=False)
        token_ids = text.tokenizer.encode(header.probe_text)
        return written == header.probe_text and encode_chat(text, header.probe) == tuple(token_ids)
    except SlipstreamError:
        return False


def encode_chat(
    text: TextParts,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    thinking_mode: str | None = None,
    is_open: bool = False,
) -> tuple[int, ...]:
    """Return the token ids of a conversation.

    Args:
        text: tokenizer and template.
        messages: as a chat request has them.
        tools: as a chat request has them.
        thinking_mode: variable of the template, or None.
        is_open: end with the opening of the assistant's turn.

    Raises:
        RequestError: the template refuses it.
    """
    assert text.template is not None
    shown = [tool.for_template() for tool in parse_tools(_plain(tools) or None).tools]
    kwargs = {} if thinking_mode is None else {"thinking_mode": thinking_mode}
    parsed = parse_messages(_plain(messages))
    return tuple(text.template.encode(parsed, add_generation_prompt=is_open, template_kwargs=kwargs, tools=shown))


def encode_document(text: TextParts, row: Text | Dialogue) -> tuple[int, ...]:
    """Return the token ids of a whole text, with the document's beginning as the tokenizer or template writes it."""
    if isinstance(row, Dialogue):
        return encode_chat(text, row.messages, row.tools)
    return _encode_text(text, row.text)


def encode_prompt(text: TextParts, row: Prompt | Problem) -> tuple[int, ...]:
    """Return the token ids of a prompt, open for its answer."""
    if isinstance(row, Prompt) and not row.messages:
        return _encode_text(text, row.text)
    tools = row.tools if isinstance(row, Prompt) else ()
    return encode_chat(text, row.messages, tools, thinking_mode=row.thinking_mode, is_open=True)


def encode_needle(text: TextParts, needle: Needle, sentences: Sequence[str]) -> tuple[int, ...]:
    """Return the token ids of a question about a long text, open for its answer.

    Args:
        text: tokenizer and template.
        needle: gives the opening and the question.
        sentences: the long text, the fact in its place.
    """
    content = f"{needle.opening}\n\n{' '.join(sentences)}\n\n{needle.fact.question}"
    return encode_chat(text, [{"role": "user", "content": content}], thinking_mode="disabled", is_open=True)


def count_bytes(tokenizer: Tokenizer, token_ids: Sequence[int]) -> int:
    """Return the UTF-8 bytes of the tokens behind the first, control tokens not counted.

    Their bits count nevertheless: markers must not make a text look longer than a reader sees it.
    """
    control = set(tokenizer.control_ids.values())
    return sum(len(tokenizer.token_bytes(id_)) for id_ in token_ids[1:] if id_ not in control)


def byte_symbols(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[int]:
    """Return the text as bytes 0 to 255, each control token as one symbol above them; see `num_byte_symbols`."""
    control = {id_: NUM_BYTES + place for place, id_ in enumerate(sorted(tokenizer.control_ids.values()))}
    symbols: list[int] = []
    for id_ in token_ids:
        symbols += [control[id_]] if id_ in control else tokenizer.token_bytes(id_)
    return symbols


def num_byte_symbols(tokenizer: Tokenizer) -> int:
    """Return the size of the alphabet of `byte_symbols`."""
    return NUM_BYTES + len(tokenizer.control_ids)


def _encode_text(text: TextParts, words: str) -> tuple[int, ...]:
    token_ids = tuple(text.tokenizer.encode(words, add_special_tokens=True))
    # The first token is not scored: a marker in front lets the text's own first token count.
    start = text.tokenizer.control_ids.get(text.tokenizer.named_tokens.get("bos_token", ""))
    return token_ids if start is None or token_ids[:1] == (start,) else (start, *token_ids)


def _plain(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [dict(item) for item in items]
