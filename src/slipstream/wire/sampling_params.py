"""How one request wants its tokens drawn. Validated on construction; values mean what vLLM's mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import msgspec

from slipstream.base.errors import RequestError, UnsupportedFeature

MAX_TEMPERATURE = 100.0
MIN_TEMPERATURE = 1e-2
MAX_STOP_STRINGS = 64
_SEED_LIMIT = 2**63


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters of one request.

    Args:
        temperature: 0 is greedy; otherwise logits are divided by it. Values in (0, 0.01) are raised to 0.01.
        top_k: keep the k most likely tokens; 0 or -1 is off.
        top_p: nucleus mass in (0, 1]; 1 is off.
        min_p: drop tokens less likely than min_p times the most likely one; in [0, 1].
        seed: the same seed and prompt give the same text, whatever the drafter or batch; None draws one.
        max_tokens: most tokens to return; None means as many as the context holds.
        stop: strings that end the text; they are not returned unless include_stop_str_in_output.
        stop_token_ids: token ids that end the text, besides the model's own end token.
        ignore_eos: do not end at the model's end token.
        logprobs: None for none; 0 returns the chosen token's raw log-probability.
        skip_special_tokens: leave special tokens out of the text.
        include_stop_str_in_output: keep the stop string that ended the text.

    Raises:
        RequestError: a value outside its range, or of the wrong type; `param` names the field.
        UnsupportedFeature: logprobs above 0.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            msgspec.structs.force_setattr(self, name, value)

        temperature = _number("temperature", self.temperature)
        if not 0.0 <= temperature <= MAX_TEMPERATURE:
            _refuse("temperature", self.temperature, f"a number from 0 to {MAX_TEMPERATURE:g}; 0 is greedy")
        put("temperature", max(temperature, MIN_TEMPERATURE) if temperature > 0 else 0.0)
        if _integer("top_k", self.top_k) < -1:
            _refuse("top_k", self.top_k, "an integer of at least 1, or 0 or -1 for off")
        put("top_k", max(self.top_k, 0))
        top_p = _number("top_p", self.top_p)
        if not 0.0 < top_p <= 1.0:
            _refuse("top_p", self.top_p, "a number above 0 and at most 1; 1 is off")
        put("top_p", top_p)
        min_p = _number("min_p", self.min_p)
        if not 0.0 <= min_p <= 1.0:
            _refuse("min_p", self.min_p, "a number from 0 to 1; 0 is off")
        put("min_p", min_p)
        if self.seed is not None and not -_SEED_LIMIT <= _integer("seed", self.seed) < _SEED_LIMIT:
            _refuse("seed", self.seed, "a 64-bit signed integer")
        if self.max_tokens is not None and _integer("max_tokens", self.max_tokens) < 1:
            _refuse("max_tokens", self.max_tokens, "an integer of at least 1")
        put("stop", _stop_strings(self.stop))
        put("stop_token_ids", _token_ids(self.stop_token_ids))
        for name in ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), bool):
                _refuse(name, getattr(self, name), "true or false")
        self._check_logprobs()

    def _check_logprobs(self) -> None:
        if self.logprobs is None:
            return
        if _integer("logprobs", self.logprobs) < 0:
            _refuse("logprobs", self.logprobs, "null or an integer of at least 0")
        if self.logprobs > 0:
            raise UnsupportedFeature(
                f"logprobs={self.logprobs}: alternatives per position are not served yet; "
                "0 returns the chosen token's log-probability",
                param="logprobs",
            )

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken and no noise is drawn."""
        return self.temperature == 0.0

    @property
    def has_filters(self) -> bool:
        """Whether top-k, top-p or min-p can remove a token."""
        return not self.is_greedy and (self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0)


def _refuse(name: str, value: object, allowed: str) -> None:
    raise RequestError(f"{name}={value!r} is not allowed: give {allowed}", param=name)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        _refuse(name, value, "a finite number")
    return float(value)  # type: ignore[arg-type]


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(name, value, "an integer")
    return value  # type: ignore[return-value]


def _stop_strings(value: object) -> tuple[str, ...]:
    allowed = "a string or a list of strings"
    items = (value,) if isinstance(value, str) else _items("stop", value, allowed)
    strings = tuple(item for item in items if isinstance(item, str))
    if len(strings) != len(items):
        _refuse("stop", value, allowed)
    if any(not item for item in strings) or len(strings) > MAX_STOP_STRINGS:
        _refuse("stop", value, f"at most {MAX_STOP_STRINGS} strings, none of them empty")
    return strings


def _token_ids(value: object) -> tuple[int, ...]:
    ids = tuple(_integer("stop_token_ids", item) for item in _items("stop_token_ids", value, "a list of token ids"))
    for item in ids:
        if item < 0:
            _refuse("stop_token_ids", item, "token ids of at least 0")
    return ids


def _items(name: str, value: object, allowed: str) -> Sequence[object]:
    if not isinstance(value, (list, tuple)):
        _refuse(name, value, allowed)
    return cast("Sequence[object]", value)
