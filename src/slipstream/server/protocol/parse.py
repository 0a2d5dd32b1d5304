"""A request body to a checked request, or an error that names the field."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from slipstream.base.errors import ContextLengthError, RequestError, UnsupportedFeature
from slipstream.frontend.processor import CONTEXT_CODE
from slipstream.server.protocol.endpoints import Endpoint
from slipstream.server.protocol.fields import is_neutral
from slipstream.server.protocol.requests import CompletionRequest, SamplingFields
from slipstream.server.protocol.structured import grammar_of
from slipstream.wire.sampling_params import SamplingParams

_MAX_SHOWN = 80
_MAX_ID_DIGITS = 18
_Model = TypeVar("_Model", bound=BaseModel)


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body.

    Raises:
        RequestError: the body is not one JSON object in UTF-8.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not JSON in UTF-8: {error}") from error
    if not isinstance(value, dict):
        raise RequestError(f"the body is {_show(value)}: send a JSON object")
    return value


def parse_fields(endpoint: Endpoint, model: type[_Model], fields: dict[str, Any]) -> _Model:
    """Return the accepted fields of a request.

    Args:
        endpoint: whose tables apply.
        model: its request model.
        fields: the body.

    Raises:
        UnsupportedFeature: a refused field asks for something.
        RequestError: an unknown field, or a value of the wrong type.
    """
    ignored = {field.name for field in endpoint.ignored}
    refused = {field.name: field for field in endpoint.refused}
    accepted: dict[str, Any] = {}
    for name, value in fields.items():
        if name in model.model_fields:
            if value is not None:
                accepted[name] = value
        elif name in refused:
            if not is_neutral(value, refused[name]):
                raise UnsupportedFeature(
                    f"{name}={_show(value)}: {refused[name].reason}", param=name, code="unsupported_feature"
                )
        elif name not in ignored:
            raise RequestError(
                f"{_show(name)} is not a field of {endpoint.path}: leave it out; it accepts "
                f"{', '.join(model.model_fields)}",
                param=name[:_MAX_SHOWN],
                code="unknown_field",
            )
    try:
        return model.model_validate(accepted)
    except ValidationError as error:
        raise _explain(error, model) from error


def sampling_of(request: SamplingFields, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    """Return the sampling parameters of a request.

    Args:
        request: its accepted fields.
        max_tokens: most tokens to return.
        logprobs: as `SamplingParams` has it.

    Raises:
        RequestError: a value outside its range, or more than one constraint on the text.
        UnsupportedFeature: an option of structured output that is not served.
    """
    stop = request.stop if request.stop is not None else ()
    return SamplingParams(
        temperature=request.temperature,
        top_k=request.top_k,
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
        max_tokens=max_tokens,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(request.stop_token_ids),
        ignore_eos=request.ignore_eos,
        logprobs=logprobs,
        skip_special_tokens=request.skip_special_tokens,
        include_stop_str_in_output=request.include_stop_str_in_output,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        logit_bias=biases_of(request.logit_bias),
        allowed_token_ids=None if request.allowed_token_ids is None else tuple(request.allowed_token_ids),
        bad_words=tuple(request.bad_words),
        min_tokens=request.min_tokens,
        prompt_logprobs=request.prompt_logprobs,
        n=request.n,
        grammar=grammar_of(request),
    )


def completion_sampling(request: CompletionRequest) -> SamplingParams:
    """Return the sampling parameters of a completion request.

    The engine always returns a token; for max_tokens 0 it is asked for one, which nobody is shown.

    Raises:
        RequestError: a value outside its range, or fields that contradict each other.
        UnsupportedFeature: best_of other than n.
    """
    if request.best_of is not None and request.best_of != request.n:
        raise UnsupportedFeature(
            f"best_of={_show(request.best_of)} and n={_show(request.n)}: choosing among answers is not served; leave "
            "best_of out",
            param="best_of",
            code="unsupported_feature",
        )
    max_tokens = request.max_tokens
    if max_tokens == 0:
        if not request.echo and request.prompt_logprobs is None:
            raise RequestError(
                "max_tokens=0 returns nothing: give at least 1, or set echo or prompt_logprobs to score the prompt",
                param="max_tokens",
            )
        if request.min_tokens > 0:
            raise RequestError(
                f"min_tokens={_show(request.min_tokens)} is not allowed: give at most max_tokens, which is 0",
                param="min_tokens",
            )
        max_tokens = 1
    sampling = sampling_of(request, max_tokens=max_tokens, logprobs=request.logprobs)
    if request.echo and request.logprobs is not None:
        num_top = max(request.logprobs, request.prompt_logprobs or 0)
        sampling = msgspec.structs.replace(sampling, prompt_logprobs=num_top)
    return sampling


def biases_of(biases: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """Return the pairs of a logit_bias, whose keys JSON has as text.

    Raises:
        RequestError: a key is no token id, or two name the same one.
    """
    pairs: dict[int, float] = {}
    for key, bias in biases.items():
        if not (key.isascii() and key.isdigit() and len(key) <= _MAX_ID_DIGITS):
            raise RequestError(
                f"logit_bias holds the key {_show(key)}: give token ids as keys, in decimal digits", param="logit_bias"
            )
        if int(key) in pairs:
            raise RequestError(f"logit_bias holds token id {int(key)} twice: give it once", param="logit_bias")
        pairs[int(key)] = bias
    return tuple(pairs.items())


def wants_usage(request: SamplingFields) -> bool:
    """Return whether a stream ends with its usage.

    Args:
        request: its accepted fields.

    Raises:
        RequestError: stream_options without stream, or usage in every chunk without any at the end.
    """
    options = request.stream_options
    if options is None:
        return False
    if not request.stream:
        raise RequestError("stream_options without stream: set stream to true", param="stream_options")
    if options.continuous_usage_stats and not options.include_usage:
        raise RequestError(
            "stream_options.continuous_usage_stats without include_usage: set both to true", param="stream_options"
        )
    return bool(options.include_usage)


def wants_running_usage(request: SamplingFields) -> bool:
    """Return whether every chunk of a stream carries usage; `wants_usage` has checked the options."""
    return request.stream_options is not None and bool(request.stream_options.continuous_usage_stats)


def parse_prompts(value: object, *, max_prompts: int, max_prompt_tokens: int) -> list[str | list[int]]:
    """Return the prompts of a completion request. What is too many is refused before it is looked at.

    Args:
        value: the field.
        max_prompts: most prompts.
        max_prompt_tokens: most token ids of one prompt.

    Raises:
        RequestError: it is none of a text, token ids, a list of texts, a list of token ids; or too many of them.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        _check_counts(value, max_prompts, max_prompt_tokens)
        if _is_ids(value):
            return [value]
        if all(isinstance(item, str) for item in value) or all(_is_ids(item) for item in value):
            return value
    raise RequestError(
        f"prompt={_show(value)} is not allowed: a string, a list of token ids, a list of strings, or a list of lists "
        "of ids, and none of them empty",
        param="prompt",
    )


def _check_counts(value: list[Any], max_prompts: int, max_prompt_tokens: int) -> None:
    # A list that begins with an id is one prompt; its other items decide later whether it is one.
    is_many = type(value[0]) is not int
    if is_many and len(value) > max_prompts:
        raise RequestError(
            f"prompt holds {len(value)} prompts; this server takes {max_prompts} requests at once: send fewer",
            param="prompt",
        )
    num_ids = max((len(item) for item in value if isinstance(item, list)), default=0) if is_many else len(value)
    if num_ids > max_prompt_tokens:
        raise ContextLengthError(
            f"prompt holds {num_ids} token ids; a prompt has at most {max_prompt_tokens}: shorten it",
            param="prompt",
            code=CONTEXT_CODE,
        )


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _explain(error: ValidationError, model: type[BaseModel]) -> RequestError:
    found = error.errors(include_url=False, include_context=False)
    # A list that is too long fails every branch of a union; only one of them says so.
    first = next((entry for entry in found if entry["type"] == "too_long"), found[0])
    where = first["loc"]
    field = str(where[0])
    meaning = model.model_fields[field].description
    if first["type"] == "missing":
        return RequestError(f"{field} is missing; {field}: {meaning}", param=field)
    # The rest of the location names branches of a union too; only positions in a list help the caller.
    place = field + "".join(f"[{part}]" for part in where[1:] if isinstance(part, int))
    given = _show(first["input"])
    return RequestError(f"{place}={given} is not allowed ({first['msg']}); {field}: {meaning}", param=field)


def _show(value: object) -> str:
    value = _clip(value)
    try:
        text = msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError):
        text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _clip(value: object, depth: int = 4) -> object:
    """Return as much of a value as can be shown; a body holds millions of items."""
    if isinstance(value, str):
        return value[:_MAX_SHOWN]
    if isinstance(value, list) and value:
        return [_clip(item, depth - 1) for item in value[:_MAX_SHOWN]] if depth else ["…"]
    if isinstance(value, dict) and value:
        shown = itertools.islice(value.items(), _MAX_SHOWN)
        return {_clip(key): _clip(item, depth - 1) for key, item in shown} if depth else {"…": "…"}
    return value
