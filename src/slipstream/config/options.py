"""The option table: every choice a user may make, once. Command line, documentation and validation derive from it.

An `Options` value may leave anything open; `resolve` turns it into an `EngineConfig`, where nothing is. Not here:
defaults that depend on the checkpoint or the machine; the table says `auto` for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from slipstream.base.errors import ConfigError

Kind = Literal["text", "whole", "number", "switch"]
AUTO = "auto"
_MAX_SHOWN_BITS = 2000
_MAX_WHOLE = 2**63 - 1


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option.

    Args:
        name: field of `Options`; the flag is `--` and the name with dashes.
        kind: type of a given value.
        default: value when it is left open; `auto` depends on the checkpoint or the machine, None means absent.
        section: section of `EngineConfig` that it feeds.
        help: one or two sentences.
        choices: allowed words; empty for any.
        minimum, maximum: bounds of a number, both included.
        metavar: placeholder in help texts.
        is_repeatable: may be given several times; its value is a tuple.
        is_secret: never shown.
    """

    name: str
    kind: Kind
    default: str | int | float | bool | None
    section: str
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    metavar: str = ""
    is_repeatable: bool = False
    is_secret: bool = False

    @property
    def flag(self) -> str:
        """Return the command-line spelling."""
        return "--" + self.name.replace("_", "-")

    @property
    def allowed(self) -> str:
        """Return the allowed values in words."""
        auto = "auto or " if self.default == AUTO and AUTO not in self.choices else ""
        if self.choices:
            return ", ".join(self.choices)
        if self.kind == "switch":
            return "true or false"
        if self.kind == "text":
            return self.metavar or "a text that is not empty"
        noun = "a whole number" if self.kind == "whole" else "a number"
        if self.maximum is None:
            return f"{auto}{noun} of at least {self.minimum:g}"
        return f"{auto}{noun} from {self.minimum:g} to {self.maximum:g}"


def _option(name: str, kind: Kind, default: Any, section: str, text: str, **more: Any) -> Option:
    return Option(name=name, kind=kind, default=default, section=section, help=text, **more)


OPTIONS: tuple[Option, ...] = (
    _option(
        "model",
        "text",
        "demo",
        "model",
        "Folder of a checkpoint, or demo for the bundled model; the first argument of serve, chat, explain and bench "
        "decode, a flag of generate.",
        metavar="demo or a folder",
    ),
    _option(
        "served_model_name",
        "text",
        AUTO,
        "server",
        "Name in the API; auto is demo or the folder's name.",
        metavar="a name",
    ),
    _option(
        "device",
        "text",
        AUTO,
        "model",
        "Where the engine runs; auto is cuda where a CUDA device and a CUDA build of torch are found, else cpu.",
        choices=("auto", "cpu", "cuda"),
    ),
    _option(
        "dtype",
        "text",
        AUTO,
        "model",
        "Arithmetic of weights and cache; auto is float32 on cpu, bfloat16 on cuda.",
        choices=("auto", "float32", "bfloat16"),
    ),
    _option(
        "seed",
        "whole",
        0,
        "model",
        "Seed of everything random that is not a request's.",
        minimum=0,
        maximum=2**63 - 1,
    ),
    _option(
        "threads",
        "whole",
        AUTO,
        "model",
        "CPU threads of the kernels, on each rank; auto is the cores of this process less one, shared out among the "
        "ranks.",
        minimum=1,
        maximum=1024,
    ),
    _option(
        "tp",
        "whole",
        1,
        "parallel",
        "Tensor-parallel width: ranks that share every layer. serve refuses more than 1.",
        minimum=1,
        maximum=64,
    ),
    _option(
        "max_model_len",
        "whole",
        AUTO,
        "scheduler",
        "Longest request in tokens, prompt and answer; auto is the checkpoint's.",
        minimum=2,
    ),
    _option(
        "max_num_seqs",
        "whole",
        16,
        "scheduler",
        "Requests that run at once.",
        minimum=1,
        maximum=4096,
    ),
    _option(
        "prefill_chunk_tokens",
        "whole",
        512,
        "scheduler",
        "Prompt tokens of one step; smaller keeps answers of other requests smoother.",
        minimum=1,
    ),
    _option(
        "overlap",
        "text",
        AUTO,
        "scheduler",
        "Plan a step while the last one runs; auto is off on cpu, on on cuda.",
        choices=("auto", "on", "off"),
    ),
    _option(
        "cuda_graphs",
        "text",
        AUTO,
        "scheduler",
        "Replay whole decode steps from CUDA graphs; auto is on on cuda. Off launches every step kernel by kernel.",
        choices=("auto", "on", "off"),
    ),
    _option(
        "late_compile",
        "text",
        "warn",
        "scheduler",
        "What a kernel compiled after the engine was ready leads to: a warning in the log, or the engine's end.",
        choices=("warn", "error"),
    ),
    _option(
        "kv_cache_bytes",
        "whole",
        AUTO,
        "cache",
        "Bytes of the paged cache, on each rank; auto is max_num_seqs requests of full length, at most what is "
        "free on a GPU, and a quarter of the free memory on a CPU.",
        minimum=1,
    ),
    _option(
        "kv_cache_dtype",
        "text",
        AUTO,
        "cache",
        "Element type of cached keys, values and index keys; auto is the model's own, fp8 (e4m3, saturating, scale 1) "
        "takes half the memory of bfloat16 and rounds.",
        choices=("auto", "fp8"),
    ),
    _option(
        "prefix_cache",
        "switch",
        True,
        "cache",
        "Reuse the cache of equal prompt beginnings.",
    ),
    _option(
        "poison_freed_pages",
        "switch",
        False,
        "cache",
        "Fill the null page and freed pages with NaN; for debugging.",
    ),
    _option(
        "drafter",
        "text",
        AUTO,
        "speculation",
        "What drafts tokens: a name or a drafter's folder; auto is the checkpoint's own.",
        metavar="auto, none, ngram, eagle3, or a folder",
    ),
    _option(
        "draft_len",
        "whole",
        AUTO,
        "speculation",
        "Drafts per step; auto is the drafter's default (eagle3 3, ngram 4, none 0).",
        minimum=0,
        maximum=16,
    ),
    _option(
        "verification",
        "text",
        AUTO,
        "speculation",
        "How drafts are accepted; coupled: the same seed gives the same text, drafts or not; rejection: only the "
        "distribution stays; auto: coupled for requests with a seed, rejection for others.",
        choices=("auto", "coupled", "rejection"),
    ),
    _option(
        "ngram_max",
        "whole",
        4,
        "speculation",
        "Longest run of tokens that the ngram drafter looks up.",
        minimum=1,
        maximum=16,
    ),
    _option(
        "ngram_min",
        "whole",
        1,
        "speculation",
        "Shortest run of tokens that the ngram drafter looks up.",
        minimum=1,
        maximum=16,
    ),
    _option("host", "text", "127.0.0.1", "server", "Address to listen on.", metavar="an address"),
    _option("port", "whole", 8000, "server", "Port to listen on; 0 takes a free one.", minimum=0, maximum=65535),
    _option(
        "api_key",
        "text",
        None,
        "server",
        "Key that requests must carry, as a bearer token or in x-api-key; may be repeated, any one of them will do. "
        "The variable SLIPSTREAM_API_KEY adds one, and is not seen in the list of processes. Without any key none is "
        "asked for.",
        metavar="a text that is not empty",
        is_repeatable=True,
        is_secret=True,
    ),
    _option(
        "api_key_file",
        "text",
        None,
        "server",
        "File of further keys, one per line; empty lines and lines that begin with # do not count. Let nobody else "
        "read it.",
        metavar="a file",
    ),
    _option(
        "max_queue",
        "whole",
        256,
        "server",
        "Requests that may wait; more are answered with 503. 0 lets none wait.",
        minimum=0,
    ),
    _option(
        "drain_s",
        "number",
        30.0,
        "server",
        "Seconds that running requests get after a stop signal.",
        minimum=0,
        maximum=3600,
    ),
    _option(
        "engine_timeout_s",
        "number",
        120.0,
        "server",
        "Seconds without a word from the engine, while requests run, after which it counts as hung and the server "
        "ends; 0 waits for ever.",
        minimum=0,
        maximum=86400,
    ),
    _option("log_format", "text", "text", "server", "How log lines look.", choices=("text", "json")),
    _option(
        "log_level",
        "text",
        AUTO,
        "server",
        "Least severe lines that the log shows; auto is SLIPSTREAM_LOG_LEVEL, or info.",
        choices=("auto", "debug", "info", "warning", "error"),
    ),
)


OPTION_BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose; None leaves a choice open. Field by field the option table.

    Numbers whose default is `auto` also accept the word auto.
    """

    model: str | None = None
    served_model_name: str | None = None
    device: str | None = None
    dtype: str | None = None
    seed: int | None = None
    threads: int | str | None = None
    tp: int | None = None
    max_model_len: int | str | None = None
    max_num_seqs: int | None = None
    prefill_chunk_tokens: int | None = None
    overlap: str | None = None
    cuda_graphs: str | None = None
    late_compile: str | None = None
    kv_cache_bytes: int | str | None = None
    kv_cache_dtype: str | None = None
    prefix_cache: bool | None = None
    poison_freed_pages: bool | None = None
    drafter: str | None = None
    draft_len: int | str | None = None
    verification: str | None = None
    ngram_max: int | None = None
    ngram_min: int | None = None
    host: str | None = None
    port: int | None = None
    api_key: str | Sequence[str] | None = None
    api_key_file: str | None = None
    max_queue: int | None = None
    drain_s: float | None = None
    engine_timeout_s: float | None = None
    log_format: str | None = None
    log_level: str | None = None


def check_value(option: Option, value: object) -> Any:
    """Return a given value after checking its type and range.

    Args:
        option: the option.
        value: what the user gave, not None; of a repeatable option one value or several.

    Raises:
        ConfigError: the value is not allowed; the message says what is.
    """
    if value == AUTO and option.default == AUTO:
        return value
    if option.is_repeatable:
        return tuple(_check_one(option, item) for item in (value if isinstance(value, list | tuple) else (value,)))
    return _check_one(option, value)


def _check_one(option: Option, value: object) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if option.kind == "switch":
        is_good = isinstance(value, bool)
    elif option.kind == "text":
        is_good = isinstance(value, str) and bool(value.strip()) and (not option.choices or value in option.choices)
    else:
        is_good = is_number and (isinstance(value, int) or option.kind == "number") and _in_bounds(option, value)
    if not is_good:
        # Python refuses to print an integer of many digits.
        num_bits = value.bit_length() if isinstance(value, int) else 0
        shown = f"a number of {num_bits} bits" if num_bits > _MAX_SHOWN_BITS else repr(value)
        shown = "***" if option.is_secret else shown
        bound = " that fits 64 bits" if num_bits > _MAX_WHOLE.bit_length() and option.maximum is None else ""
        raise ConfigError(f"{option.name}={shown} is not allowed: give {option.allowed}{bound} ({option.flag})")
    return float(value) if option.kind == "number" else value  # type: ignore[arg-type]


def _in_bounds(option: Option, value: object) -> bool:
    if isinstance(value, int) and abs(value) > _MAX_WHOLE:
        return False
    number = float(value)  # type: ignore[arg-type]
    above = option.minimum is None or number >= option.minimum
    below = option.maximum is None or number <= option.maximum
    return math.isfinite(number) and above and below


def read_options(values: dict[str, Any]) -> Options:
    """Return `Options` from names and values, a configuration file for example.

    Raises:
        ConfigError: an unknown name, or a value that is not allowed.
    """
    for name, value in values.items():
        if name not in OPTION_BY_NAME:
            raise ConfigError(f"{name} is not an option; allowed: {', '.join(OPTION_BY_NAME)}")
        if value is not None:
            check_value(OPTION_BY_NAME[name], value)
    return Options(**values)
