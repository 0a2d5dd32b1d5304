"""How log lines look, as text or as JSON, in every process of the program.

`log_fields(logger, level, message, name=value, ...)` writes a line with fields; a plain `logger.info(...)` has none.
No line holds a prompt or an answer: callers do not pass them, and of an exception only its class and places are
written, because its message may quote what a request said. Known secrets are blotted out wherever they stand.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
import traceback
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Literal, TextIO

LogFormat = Literal["text", "json"]

ROOT = "slipstream"
"""Logger above all of this project's."""

MIN_SECRET_CHARS = 6
"""Shorter ones would blot out ordinary words."""

HIDDEN = "***"
_FIELDS = "fields"
_MAX_VALUE_CHARS = 1000

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def log_fields(logger: logging.Logger, level: int, message: str, **fields: object) -> None:
    """Write a line with fields.

    Args:
        logger: where.
        level: of `logging`.
        message: a constant text; what varies belongs into fields.
        fields: names and plain values; those that are None are left out.
    """
    logger.log(level, message, extra={_FIELDS: {name: value for name, value in fields.items() if value is not None}})


def set_up_logging(
    log_format: LogFormat,
    level: str,
    *,
    process: str,
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Send every line of this process to one stream in one format. What was set up before is replaced.

    Args:
        log_format: text, or json with one object per line.
        level: least severe lines that are shown: debug, info, warning or error.
        process: what this process is: server, or engine.
        secrets: blotted out in every line.
        stream: None is standard error.
    """
    handler = _Handler(sys.stderr if stream is None else stream)
    kind = JsonFormatter if log_format == "json" else TextFormatter
    handler.setFormatter(kind(process, secrets))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    # Other packages have much to say below a warning, and nothing that belongs into this log.
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())


class _Handler(logging.StreamHandler[TextIO]):
    """Goes on when nobody reads the log any more: a server must not end, or complain to nobody, because of that."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        # A stream that was closed is a ValueError.
        if not isinstance(sys.exc_info()[1], OSError | ValueError):
            super().handleError(record)


class _Formatter(logging.Formatter):
    """What both formats share.

    Args:
        process: what this process is.
        secrets: blotted out.
    """

    def __init__(self, process: str, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._process = process
        self._secrets = tuple(sorted({s for s in secrets if len(s) >= MIN_SECRET_CHARS}, key=len, reverse=True))

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def _message(self, record: logging.LogRecord) -> str:
        return self._hide(record.getMessage())

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        fields: Mapping[str, object] = getattr(record, _FIELDS, {})
        return {name: self._value(value) for name, value in fields.items()}

    def _value(self, value: object) -> object:
        if isinstance(value, float):
            return round(value, 6)
        if isinstance(value, bool | int):
            return value
        return self._hide(str(value)[:_MAX_VALUE_CHARS])

    @staticmethod
    def _time(record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonFormatter(_Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": self._time(record),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": self._message(record),
            **self._fields(record),
        }
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["exception"], line["places"] = describe_exception(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


class TextFormatter(_Formatter):
    """One line of words; fields follow the message as name=value, values with blanks or controls in quotes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the places of an exception below it."""
        words = [
            self._time(record),
            record.levelname,
            f"{self._process}:{record.name}:",
            _one_line(self._message(record)),
        ]
        words += [f"{name}={_quote(value)}" for name, value in self._fields(record).items()]
        if record.exc_info is not None and record.exc_info[0] is not None:
            name, places = describe_exception(record.exc_info)
            words += [f"exception={name}", *(f"\n    at {place}" for place in places)]
        return " ".join(words)


def describe_exception(info: ExceptionInfo) -> tuple[str, list[str]]:
    """Return the class of an exception and where it came through, outermost first; never its message."""
    kind, _, trace = info
    return kind.__name__, [f"{place.filename}:{place.lineno} {place.name}" for place in traceback.extract_tb(trace)]


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def _quote(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_plain = text.isprintable() and not any(character in ' "=' for character in text)
    return text if is_plain and text else json.dumps(text)
