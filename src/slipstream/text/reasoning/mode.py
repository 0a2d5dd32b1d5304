"""Which part of an answer comes first, known before its first token.

The state is read from what the template itself put at the end of the prompt, or else from the request's thinking
mode. It is never found by searching the conversation: instructions and users quote the tags. Not here: splitting
the answer (parser).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from slipstream.base.errors import RequestError

THINK_OPEN = "<mm:think>"
THINK_CLOSE = "</mm:think>"

ThinkingMode = Literal["enabled", "disabled", "adaptive"]
"""What a request may ask for; adaptive leaves the choice to the model."""

State = Literal["reasoning", "content", "undecided"]
"""What the next token of the answer belongs to."""

_MODES: dict[str, ThinkingMode] = {"enabled": "enabled", "disabled": "disabled", "adaptive": "adaptive"}
_STATES: dict[ThinkingMode | None, State] = {
    "enabled": "reasoning",
    "disabled": "content",
    "adaptive": "undecided",
    None: "undecided",
}


MODE_NAMES = frozenset({"thinking_mode", "enable_thinking", "thinking"})
"""Template variables under which a request may ask for a mode."""


def thinking_mode(template_kwargs: Mapping[str, Any]) -> ThinkingMode | None:
    """Return the thinking mode that the template variables of a request ask for, under any of its names.

    Args:
        template_kwargs: may hold `thinking_mode` (a mode), `enable_thinking` (a boolean) and `thinking` (a boolean, a
            mode, or an object whose `type` is a mode); null counts as absent.

    Returns:
        The mode, or None if nothing is asked for and the template's own default applies.

    Raises:
        RequestError: a value is not a mode, or two names contradict each other.
    """
    asked: dict[str, ThinkingMode] = {}
    for name in ("thinking_mode", "enable_thinking", "thinking"):
        value = template_kwargs.get(name)
        if isinstance(value, Mapping) and name == "thinking":
            value = value.get("type")
        if value is None:
            continue
        if isinstance(value, bool) and name != "thinking_mode":
            asked[name] = "enabled" if value else "disabled"
        elif isinstance(value, str) and value in _MODES and name != "enable_thinking":
            asked[name] = _MODES[value]
        else:
            allowed = "true or false" if name == "enable_thinking" else f"one of {', '.join(_MODES)}"
            raise RequestError(
                f"chat_template_kwargs.{name}={str(value)[:60]!r} is not allowed: give {allowed}",
                param=f"chat_template_kwargs.{name}",
            )
    if len(set(asked.values())) > 1:
        said = ", ".join(f"{name} means {mode}" for name, mode in asked.items())
        raise RequestError(
            f"chat_template_kwargs contradicts itself: {said}; give one of them", param="chat_template_kwargs"
        )
    return next(iter(asked.values()), None)


def pin_mode(mode: ThinkingMode | None, *, is_constrained: bool) -> ThinkingMode | None:
    """Return the mode to render with, so that a constrained answer has one certain start.

    A grammar must know whether it applies from the first token (disabled) or from the end of the reasoning (enabled).
    A mode that leaves this to the model becomes disabled; a stated choice stays.
    """
    if is_constrained and mode in (None, "adaptive"):
        return "disabled"
    return mode


def generation_prompt_tail(with_prompt: str, without_prompt: str) -> str | None:
    """Return what the template appends for the answer: the difference of two renderings of one conversation.

    Args:
        with_prompt: rendered with the generation prompt.
        without_prompt: rendered without.

    Returns:
        The appended text, or None if the template changes more than the end, so that nothing can be said.
    """
    if not with_prompt.startswith(without_prompt):
        return None
    return with_prompt[len(without_prompt) :]


def initial_state(mode: ThinkingMode | None, prompt_tail: str | None) -> State:
    """Return what the first token of an answer belongs to.

    Args:
        mode: the thinking mode that the prompt was rendered with; counts only if the tail is unknown.
        prompt_tail: what the template wrote after the conversation (`generation_prompt_tail`), or None if unknown,
            as for a prompt that came as token ids. White space at its end does not count.

    Returns:
        reasoning or content if the tail ends with an opened or closed think tag, which is what the model sees,
        whatever the mode says; undecided if it ends otherwise, for then the model writes its own tags.
    """
    if prompt_tail is None:
        return _STATES[mode]
    tail = prompt_tail.rstrip()
    if tail.endswith(THINK_OPEN):
        return "reasoning"
    return "content" if tail.endswith(THINK_CLOSE) else "undecided"
