"""What the target is asked: conversations or bare texts from a file, some of them held out.

A `.jsonl` file has one object per line: `messages` (with `tools` and `thinking_mode`, if wanted) or `prompt`, and
`domain`, by which measurements are grouped. Any other file has one bare prompt per line.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from slipstream.base.errors import ConfigError, ContextLengthError, SlipstreamError
from slipstream.frontend.chat import ChatAsk
from slipstream.frontend.processor import Processor
from slipstream.text.messages import parse_messages
from slipstream.text.tools.schema import parse_tool_choice, parse_tools
from slipstream.wire.sampling_params import SamplingParams

DEFAULT_DOMAIN = "all"
MAX_HELD_OUT = 64
_HELD_OUT_SHARE = 0.1


class TrainingPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt: a conversation, or a text that the target continues.

    Args:
        domain: what kind of text it asks for.
        where: file and line, for messages.
        messages, tools: of a conversation, in OpenAI's form.
        thinking_mode: variable of the chat template, or None.
        text: the bare prompt, or None for a conversation.
    """

    domain: str
    where: str
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    thinking_mode: str | None = None
    text: str | None = None

    @property
    def key(self) -> str:
        """Return what is asked, in one word: equal for prompts that differ in place and domain alone."""
        return json.dumps([self.messages, self.tools, self.thinking_mode, self.text], sort_keys=True)


def read_prompts(path: Path) -> tuple[TrainingPrompt, ...]:
    """Return the prompts of a file; blank lines are skipped.

    Raises:
        ConfigError: the file is missing, no text, holds no prompt, or a line that is none.
    """
    try:
        # HAZARD: str.splitlines would also split at characters that stand inside JSON strings, such as U+2028.
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file of prompts; give a .jsonl file, or a text file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: prompts cannot be read ({error}); give a text file in UTF-8") from None
    parse = _parse_line if path.suffix == ".jsonl" else _plain_line
    prompts = tuple(parse(line, f"{path.name}:{number}") for number, line in enumerate(lines, 1) if line.strip())
    if not prompts:
        raise ConfigError(f"{path} holds no prompts; give at least one line with a prompt")
    return prompts


def _plain_line(line: str, where: str) -> TrainingPrompt:
    return TrainingPrompt(domain=DEFAULT_DOMAIN, where=where, text=line)


def _parse_line(line: str, where: str) -> TrainingPrompt:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply, or a number too long"
        raise ConfigError(f"{where}: not JSON ({reason}); a .jsonl file has one object per line") from None
    if not isinstance(value, dict) or (value.get("messages") is None) == (value.get("prompt") is None):
        raise ConfigError(f"{where}: give an object with either 'messages' or 'prompt'")
    domain, mode = value.get("domain", DEFAULT_DOMAIN), value.get("thinking_mode")
    if not isinstance(domain, str) or not isinstance(mode, str | None):
        raise ConfigError(f"{where}: 'domain' and 'thinking_mode' must be strings")
    if value.get("prompt") is not None:
        if not isinstance(value["prompt"], str) or not value["prompt"]:
            raise ConfigError(f"{where}: 'prompt' must be a string that is not empty")
        return TrainingPrompt(domain=domain, where=where, text=value["prompt"])
    messages, tools = value["messages"], value.get("tools") or []
    for name, items in (("messages", messages), ("tools", tools)):
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ConfigError(f"{where}: '{name}' must be a list of objects")
    if not messages:
        raise ConfigError(f"{where}: 'messages' is empty; give at least one message")
    return TrainingPrompt(domain=domain, where=where, messages=tuple(messages), tools=tuple(tools), thinking_mode=mode)


def split_prompts(
    prompts: Sequence[TrainingPrompt], seed: int
) -> tuple[tuple[TrainingPrompt, ...], tuple[TrainingPrompt, ...]]:
    """Return prompts to train on, and a tenth of every domain, at least one, that is held out; the seed decides which.

    A domain's only prompt is trained on. At most 64 are held out.
    """
    by_domain: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        by_domain.setdefault(prompt.domain, []).append(place)
    chosen: list[int] = []
    for domain, places in by_domain.items():
        count = max(1, int(len(places) * _HELD_OUT_SHARE)) if len(places) > 1 else 0
        chosen += random.Random(f"held out {seed} {domain}").sample(places, count)
    random.Random(f"held out {seed}").shuffle(chosen)
    held_out = set(chosen[:MAX_HELD_OUT])
    kept = tuple(prompt for place, prompt in enumerate(prompts) if place not in held_out)
    return kept, tuple(prompts[place] for place in sorted(held_out))


def encode_prompt(prompt: TrainingPrompt, processor: Processor) -> tuple[int, ...]:
    """Return the token ids that the target sees.

    Raises:
        ConfigError: the conversation is refused; the message names its line.
        ContextLengthError: it is longer than the target's context.
    """
    try:
        if prompt.text is not None:
            return processor.tokenize(prompt.text)
        tools = parse_tools([dict(tool) for tool in prompt.tools] or None)
        ask = ChatAsk(
            messages=parse_messages([dict(message) for message in prompt.messages]),
            tools=tools,
            tool_choice=parse_tool_choice(None, tools),
            template_kwargs={} if prompt.thinking_mode is None else {"thinking_mode": prompt.thinking_mode},
        )
        return processor.prepare_chat(ask, SamplingParams()).prompt_token_ids
    except ContextLengthError:
        raise
    except SlipstreamError as error:
        raise ConfigError(f"{prompt.where}: this prompt cannot be asked: {error}") from None


class EncodedPrompt(NamedTuple):
    """A prompt and what the target sees of it."""

    prompt: TrainingPrompt
    token_ids: tuple[int, ...]


def encode_fitting(
    prompts: Sequence[TrainingPrompt], processor: Processor, max_tokens: int
) -> tuple[EncodedPrompt, ...]:
    """Return the prompts that have at most so many tokens.

    Raises:
        ConfigError: none has, or one of them is refused for another reason.
    """
    fitting: list[EncodedPrompt] = []
    for prompt in prompts:
        try:
            token_ids = encode_prompt(prompt, processor)
        except ContextLengthError:
            continue
        if len(token_ids) <= max_tokens:
            fitting.append(EncodedPrompt(prompt, token_ids))
    if not fitting:
        raise ConfigError(
            f"none of the {len(prompts)} prompts has at most {max_tokens} tokens; give shorter ones, or raise "
            "--max-length"
        )
    return tuple(fitting)
