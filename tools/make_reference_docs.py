"""Write docs/reference from the tables in the code. A test compares the pages with what this script would write.

Usage: make_reference_docs.py, with the package installed.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel

from slipstream.base import errors
from slipstream.base.switches import SWITCHES
from slipstream.config.options import OPTIONS
from slipstream.frontend.async_llm import MAX_TEXT_WORK
from slipstream.metrics.catalog import CATALOG, KEPT_FOR_DASHBOARDS
from slipstream.server.body import MAX_BODIES_BYTES, MAX_BODY_BYTES
from slipstream.server.edge.connection import DEFAULT_LIMITS
from slipstream.server.errors import status_of
from slipstream.server.protocol.endpoints import ENDPOINTS, MAX_CONTEXTS, Endpoint
from slipstream.server.serve import FLUSH_S, MAX_CONNECTIONS
from slipstream.text.messages import MAX_MESSAGES
from slipstream.wire.sampling_params import MAX_STOP_STRINGS, MAX_STOP_TOKEN_IDS

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference"
MARK = "<!-- Written by tools/make_reference_docs.py from tables in the code; changes here are lost. -->"


def build_pages() -> dict[str, str]:
    """Return file name -> text of every page."""
    pages = {
        "options.md": options_page(),
        "switches.md": switches_page(),
        "metrics.md": metrics_page(),
        "errors.md": errors_page(),
        "http.md": http_page(),
    }
    return {name: f"{MARK}\n\n" + "\n".join(lines).strip() + "\n" for name, lines in pages.items()}


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return [*lines, *("| " + " | ".join(_cell(value) for value in row) + " |" for row in rows), ""]


def _cell(value: object) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")


def _code(value: object) -> str:
    return f"`{value}`"


def options_page() -> list[str]:
    """Return the options, by section of the configuration."""
    lines = [
        "# Options",
        "",
        "Every option of the command line; `LLM` takes the same ones as keywords. `slipstream explain` shows what they "
        "resolve to on a machine. `auto` depends on the checkpoint or the machine.",
        "",
    ]
    for section in dict.fromkeys(option.section for option in OPTIONS):
        rows = [
            (_code(option.flag), _code(option.name), _default(option.default), option.allowed, option.help)
            for option in OPTIONS
            if option.section == section
        ]
        lines += [f"## {section}", "", *table(("flag", "keyword", "default", "allowed", "meaning"), rows)]
    return [*lines, "The model is the first argument of `serve`, `chat`, `explain` and `bench decode`, not a flag."]


def _default(value: object) -> str:
    if value is None:
        return "none"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else _code(value)


def switches_page() -> list[str]:
    """Return the environment variables."""
    rows = [(_code(s.name), ", ".join(s.allowed), s.owner, s.help) for s in SWITCHES]
    return [
        "# Switches",
        "",
        "Environment variables for debugging an installation without touching its command line. An unknown "
        "`SLIPSTREAM_` variable, or a value that does not parse, stops the start.",
        "",
        *table(("variable", "allowed", "obeyed by", "meaning"), rows),
    ]


def metrics_page() -> list[str]:
    """Return the metrics, by when they exist."""
    lines = [
        "# Metrics",
        "",
        "`GET /metrics` serves them in Prometheus text format. Counters end in `_total` there. Every metric also "
        "carries the labels `model_name` and `engine`.",
        "",
    ]
    titles = {
        "always": "Always",
        "speculation": "With a drafter",
        "alias": "Former names, for dashboards that still query them",
    }
    for group, title in titles.items():
        rows = [(_code(m.name), m.kind, ", ".join(m.labels), m.meaning) for m in CATALOG if m.group == group]
        lines += [f"## {title}", "", *table(("name", "kind", "labels", "meaning"), rows)]
    kept = [(_code(name), reason) for name, reason in KEPT_FOR_DASHBOARDS.items()]
    return [*lines, "## Kept for dashboards only", "", *table(("name", "reason"), kept)]


def errors_page() -> list[str]:
    """Return the error tree with what each class becomes over HTTP and on the command line."""
    lines = [
        "# Errors",
        "",
        "Everything this project raises on purpose is a `slipstream.errors.SlipstreamError`. On the command line such "
        "an error is one line on standard error and exit code 2. Over HTTP it is a JSON body in the shape of the "
        "OpenAI API.",
        "",
    ]
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    rows = []
    for kind in found:
        if issubclass(kind, errors.SlipstreamError):
            depth = len(kind.__mro__) - len(errors.SlipstreamError.__mro__)
            summary = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
            rows.append(("&nbsp;" * 4 * depth + _code(kind.__name__), status_of(kind("")), summary))
    return [*lines, *table(("class", "HTTP status", "meaning"), rows)]


def http_page() -> list[str]:
    """Return the endpoints and what becomes of each request field."""
    lines = [
        "# HTTP interface",
        "",
        "Bodies are JSON. A field is accepted, ignored because it changes nothing here, refused with status 400 unless "
        "its value asks for nothing, or unknown, which is status 400 too. `null` counts as absent.",
        "",
        *table(("method", "path", "purpose"), [(e.method, _code(e.path), e.purpose) for e in ENDPOINTS]),
        "Usage carries `speculation` with `num_verify_steps`, `num_draft_tokens`, `num_accepted` and `num_emitted` "
        "over the returned tokens; `num_emitted` counts those that verify steps made, and "
        "`num_emitted / num_verify_steps` is the acceptance length.",
        "",
    ]
    lines += _life_lines()
    lines += _limit_lines()
    for endpoint in ENDPOINTS:
        if endpoint.accepts is not None:
            lines += _endpoint_lines(endpoint, endpoint.accepts)
    return lines


def _life_lines() -> list[str]:
    """Return what a client sees while the server starts, stops and fails."""
    rows = [
        ("loading", "503 with `Retry-After`", "503, with the stage", "goes on; `ready` follows"),
        (
            "after SIGTERM or SIGINT",
            "503 with `Retry-After`; requests in flight get `--drain-s` seconds to end, then an error",
            "503, `draining`",
            "ends with exit code 0; a second signal ends it at once",
        ),
        (
            "the engine has died, or hung for `--engine-timeout-s` seconds",
            "503 with `Retry-After`; each request in flight gets one error: a stream one error event without "
            "`[DONE]`, a whole answer status 500",
            f"503, `dead`, with the reason, for {FLUSH_S} seconds",
            "ends with exit code 2 and the reason in one line on standard error",
        ),
    ]
    return ["## Start and end", "", *table(("server", "new requests", "`/health`", "process"), rows)]


def _limit_lines() -> list[str]:
    """Return the limits of requests."""
    rows = [
        ("bytes of a body", MAX_BODY_BYTES, 413),
        ("bytes of all bodies that are being read", MAX_BODIES_BYTES, 503),
        ("connections", MAX_CONNECTIONS, 503),
        ("bytes of a request line and its headers", DEFAULT_LIMITS.max_head_bytes, 431),
        ("seconds for a request line and its headers", f"{DEFAULT_LIMITS.head_s:g}", 408),
        (
            "seconds for a body",
            f"{DEFAULT_LIMITS.body_s:g}, and one more per {DEFAULT_LIMITS.body_bytes_per_s} bytes of it",
            408,
        ),
        ("requests in flight", "`--max-num-seqs` and `--max-queue`", 503),
        ("texts of `/tokenize` and `/detokenize` that are worked on", MAX_TEXT_WORK, 503),
        ("bytes of a prompt, or of all texts of a conversation", "context × bytes of the longest token", 400),
        ("tokens of a prompt", "context − 1", 400),
        ("messages of a conversation, and text parts of them all", MAX_MESSAGES, 400),
        ("prompts of a completion request", "requests in flight", 400),
        ("stop strings", MAX_STOP_STRINGS, 400),
        ("stop token ids", MAX_STOP_TOKEN_IDS, 400),
        ("tokens of `/tokenize` and `/detokenize`", f"{MAX_CONTEXTS} × context", 400),
        ("bytes of a text to `/tokenize`", f"{MAX_CONTEXTS} × context × bytes of the longest token", 400),
    ]
    return ["## Limits", "", "Beyond a limit:", "", *table(("limit of", "at most", "else"), rows)]


def _endpoint_lines(endpoint: Endpoint, model: type[BaseModel]) -> list[str]:
    accepted = [
        (_code(name), _type_name(field.annotation), _field_default(field), field.description)
        for name, field in model.model_fields.items()
    ]
    lines = [f"## {endpoint.method} {endpoint.path}", "", *table(("accepted", "type", "default", "meaning"), accepted)]
    if endpoint.ignored:
        lines += table(("ignored", "reason"), [(_code(field.name), field.reason) for field in endpoint.ignored])
    if endpoint.refused:
        rows = [
            (_code(field.name), field.reason, ", ".join(_code(_json(value)) for value in field.neutral))
            for field in endpoint.refused
        ]
        lines += table(("refused", "reason", "values that ask for nothing"), rows)
    return lines


def _field_default(field: typing.Any) -> str:
    return "required" if field.is_required() else _code(_json(field.default))


def _json(value: object) -> str:
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else repr(value).replace("'", '"')


def _type_name(hint: object) -> str:
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    arguments = [item for item in typing.get_args(hint) if item is not type(None)]
    origin = typing.get_origin(hint)
    if origin in (list, dict):
        inner = ", ".join(_type_name(item) for item in arguments)
        return "object" if origin is dict else f"list of {inner}"
    if arguments:
        return " or ".join(_type_name(item) for item in arguments)
    names = {int: "integer", float: "number", str: "string", bool: "boolean", typing.Any: "any"}
    return names.get(hint, "object")  # type: ignore[call-overload]


def main() -> int:
    """Write the pages."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, text in build_pages().items():
        (TARGET / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
