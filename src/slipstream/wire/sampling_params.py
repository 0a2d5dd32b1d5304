"""How one request wants its tokens drawn. Validated on construction; values mean what vLLM's mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from slipstream.base.errors import RequestError
from slipstream.wire.grammar import GrammarSpec

MAX_TEMPERATURE = 100.0
MIN_TEMPERATURE = 1e-2
MAX_STOP_STRINGS = 64
MAX_LOGPROBS = 20
MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 100.0
MAX_LOGIT_BIAS = 100.0
MAX_BAD_WORDS = 256
MAX_N = 128
MAX_STOP_TOKEN_IDS = 1024
_SEED_LIMIT = 2**63
_MAX_INTEGER = 2**1000
"""Beyond it an integer is no float; nothing that is allowed comes near."""
_MAX_ID_DIGITS = 18
_MAX_SHOWN_BITS = 2000
_MAX_SHOWN_ITEMS = 100


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
        logprobs: None for none; 0 returns the chosen token's raw log-probability; n > 0 also the n most likely
            tokens at its position, at most 20.
        skip_special_tokens: leave special tokens out of the text.
        include_stop_str_in_output: keep the stop string that ended the text.
        repetition_penalty: of tokens that occur in prompt or answer: a positive logit is divided by it, any other
            multiplied; 1 is off.
        presence_penalty: subtracted from the logit of every token that the answer holds; in [-2, 2], 0 is off.
        frequency_penalty: the same, times the number of times the answer holds it.
        logit_bias: (token id, value) pairs, or a mapping; values in [-100, 100] are added to logits before penalties.
        allowed_token_ids: only these tokens may be drawn; None is off, an empty list is refused.
        bad_words: texts that the answer may not contain.
        min_tokens: no end token and no stop token id before that many tokens; at most max_tokens.
        prompt_logprobs: None for none; 0 returns the raw log-probability of each prompt token but the first; n > 0
            also the n most likely tokens there. The prompt is then computed as a whole: no prefix is reused.
        n: answers per prompt, of which the front end makes requests of their own.
        grammar: what the text must look like; None leaves it free. End tokens come where the text may end.

    Raises:
        RequestError: a value outside its range, or of the wrong type; `param` names the field.
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
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    prompt_logprobs: int | None = None
    n: int = 1
    grammar: GrammarSpec | None = None

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
        if self.max_tokens is not None and not 1 <= _integer("max_tokens", self.max_tokens) < _SEED_LIMIT:
            _refuse("max_tokens", self.max_tokens, "a 64-bit integer of at least 1")
        put("stop", _strings("stop", self.stop, MAX_STOP_STRINGS))
        put("stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS))
        for name in ("ignore_eos", "skip_special_tokens", "include_stop_str_in_output"):
            if not isinstance(getattr(self, name), bool):
                _refuse(name, getattr(self, name), "true or false")
        self._check_edits(put)
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and not 0 <= _integer(name, count) <= MAX_LOGPROBS:
                _refuse(name, count, f"null, or an integer from 0 to {MAX_LOGPROBS}")
        if not 1 <= _integer("n", self.n) <= MAX_N:
            _refuse("n", self.n, f"an integer from 1 to {MAX_N}")
        if not isinstance(cast("object", self.grammar), (GrammarSpec, type(None))):
            _refuse("grammar", self.grammar, "null, or what a class method of GrammarSpec returns")
        if self.grammar is not None and self.ignore_eos:
            _refuse("ignore_eos", True, "false with structured output, whose text ends with the model's end token")

    def _check_edits(self, put: Callable[[str, object], None]) -> None:
        """Check what changes logits before the filters."""
        repetition = _number("repetition_penalty", self.repetition_penalty)
        if not 0.0 < repetition <= MAX_REPETITION_PENALTY:
            allowed = f"a number above 0 and at most {MAX_REPETITION_PENALTY:g}; 1 is off"
            _refuse("repetition_penalty", self.repetition_penalty, allowed)
        put("repetition_penalty", repetition)
        for name in ("presence_penalty", "frequency_penalty"):
            penalty = _number(name, getattr(self, name))
            if not -MAX_PENALTY <= penalty <= MAX_PENALTY:
                _refuse(name, penalty, f"a number from {-MAX_PENALTY:g} to {MAX_PENALTY:g}; 0 is off")
            put(name, penalty)
        put("logit_bias", _biases(self.logit_bias))
        if self.allowed_token_ids is not None:
            allowed_ids = tuple(sorted(set(_token_ids("allowed_token_ids", self.allowed_token_ids))))
            if not allowed_ids:
                _refuse("allowed_token_ids", self.allowed_token_ids, "null, or at least one token id")
            put("allowed_token_ids", allowed_ids)
        put("bad_words", _strings("bad_words", self.bad_words, MAX_BAD_WORDS))
        if not 0 <= _integer("min_tokens", self.min_tokens) < _SEED_LIMIT:
            _refuse("min_tokens", self.min_tokens, "a 64-bit integer of at least 0")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            _refuse("min_tokens", self.min_tokens, f"at most max_tokens, which is {self.max_tokens}")

    def for_choice(self, index: int) -> SamplingParams:
        """Return the parameters of one of the `n` answers, as a request of its own.

        Args:
            index: 0 .. n - 1. Answer 0 is what n = 1 would have given; answer i has the seed plus i, if there is one.
        """
        seed = self.seed
        if seed is not None:
            seed = (seed + index + _SEED_LIMIT) % (2 * _SEED_LIMIT) - _SEED_LIMIT
        return msgspec.structs.replace(self, n=1, seed=seed)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken and no noise is drawn."""
        return self.temperature == 0.0

    @property
    def has_filters(self) -> bool:
        """Whether top-k, top-p or min-p can remove a token."""
        return not self.is_greedy and (self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0)

    @property
    def has_penalties(self) -> bool:
        """Whether the text so far changes a logit."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def has_edits(self) -> bool:
        """Whether logits are changed before the filters; a greedy request's too."""
        return (
            self.has_penalties
            or bool(self.logit_bias or self.bad_words or self.min_tokens)
            or self.allowed_token_ids is not None
        )


def _refuse(name: str, value: object, allowed: str) -> None:
    raise RequestError(f"{name}={_show(value)} is not allowed: give {allowed}", param=name)


def _show(value: object) -> str:
    if isinstance(value, (list, tuple)):
        num_items = len(cast("Sequence[object]", value))
        return f"a list of {num_items}" if num_items > _MAX_SHOWN_ITEMS else repr(cast("object", value))
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN_BITS:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def _number(name: str, value: object) -> float:
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        _refuse(name, value, "a finite number")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        _refuse(name, value, "a finite number")
    return float(value)  # type: ignore[arg-type]


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(name, value, "an integer")
    return value  # type: ignore[return-value]


def _strings(name: str, value: object, max_strings: int) -> tuple[str, ...]:
    allowed = "a string or a list of strings"
    items = (value,) if isinstance(value, str) else _items(name, value, allowed)
    strings = tuple(item for item in items if isinstance(item, str))
    if len(strings) != len(items):
        _refuse(name, value, allowed)
    if any(not item for item in strings) or len(strings) > max_strings:
        _refuse(name, value, f"at most {max_strings} strings, none of them empty")
    return strings


def _token_ids(name: str, value: object, max_ids: int | None = None) -> tuple[int, ...]:
    items = _items(name, value, "a list of token ids")
    if max_ids is not None and len(items) > max_ids:
        _refuse(name, value, f"at most {max_ids} token ids")
    ids = tuple(_integer(name, item) for item in items)
    for item in ids:
        if item < 0:
            _refuse(name, item, "token ids of at least 0")
    return ids


def _biases(value: object) -> tuple[tuple[int, float], ...]:
    """Return pairs in order of token id. Keys may be strings of digits, as JSON has them."""
    allowed = "a mapping of token ids to numbers"
    pairs = (
        list(cast("Mapping[object, object]", value).items())
        if isinstance(value, Mapping)
        else [_pair(item, allowed) for item in _items("logit_bias", value, allowed)]
    )
    biases: dict[int, float] = {}
    for key, number in pairs:
        is_digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= _MAX_ID_DIGITS
        token = int(cast("str", key)) if is_digits else key
        if isinstance(token, bool) or not isinstance(token, int) or token < 0:
            _refuse("logit_bias", key, "token ids of at least 0 as keys")
        bias = _number("logit_bias", number)
        if not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:
            _refuse("logit_bias", number, f"values from {-MAX_LOGIT_BIAS:g} to {MAX_LOGIT_BIAS:g}")
        biases[cast("int", token)] = bias
    return tuple(sorted(biases.items()))


def _pair(item: object, allowed: str) -> tuple[object, object]:
    pair = _items("logit_bias", item, allowed)
    if len(pair) != 2:
        _refuse("logit_bias", item, allowed)
    return pair[0], pair[1]


def _items(name: str, value: object, allowed: str) -> Sequence[object]:
    if not isinstance(value, (list, tuple)):
        _refuse(name, value, allowed)
    return cast("Sequence[object]", value)
