"""Command-line flags from the option table, so that no command repeats an option.

Not here: what the values mean (config.options) or what becomes of them (config.resolve).
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from slipstream.base.errors import ConfigError
from slipstream.config.options import AUTO, OPTIONS, Option, Options, read_options

ENGINE_SECTIONS = ("model", "parallel", "cache", "scheduler", "speculation")
ALL_SECTIONS = (*ENGINE_SECTIONS, "server")
_MODEL = "model"
_MODEL_FLAG = "model_flag"


def with_options(
    sections: Iterable[str] = ALL_SECTIONS, *, is_model_flag: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command one flag per option of these sections.

    The command receives what was typed as its keyword argument `options`.

    Args:
        sections: sections of the option table.
        is_model_flag: the model is a flag too; otherwise it is the command's first argument.
    """
    chosen = tuple(option for option in OPTIONS if option.section in tuple(sections))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**typed: Any) -> Any:
            _refuse_model_flag(typed.pop(_MODEL_FLAG, None))
            values = {option.name: read_value(option, typed.pop(option.name)) for option in chosen}
            return command(options=read_options(values), **typed)

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "options"]
        table = [_parameter(option, is_model_flag=is_model_flag) for option in chosen]
        if not is_model_flag and any(option.name == _MODEL for option in chosen):
            # Accepted so that the error can say where the model goes.
            flag = Annotated[str | None, typer.Option("--model", hidden=True)]
            table.append(inspect.Parameter(_MODEL_FLAG, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=flag))
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *table)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate


def read_value(
    option: Option, typed: str | bool | list[str] | None
) -> str | int | float | bool | tuple[str, ...] | None:
    """Return a typed word as the option's kind; a word that is none is left for the table's own check to refuse."""
    if isinstance(typed, list | tuple):
        return tuple(typed) or None
    if not isinstance(typed, str) or option.kind in ("text", "switch") or typed == AUTO:
        return typed
    try:
        return int(typed) if option.kind == "whole" else float(typed)
    except ValueError:
        return typed


def given_options(options: Options) -> dict[str, Any]:
    """Return the options that were given, by name."""
    values = {name: getattr(options, name) for name in options.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}


def _refuse_model_flag(typed: str | None) -> None:
    if typed is not None:
        raise ConfigError(f"--model {typed}: this command takes the model as its first argument: leave --model out")


def _parameter(option: Option, *, is_model_flag: bool) -> inspect.Parameter:
    shown = {"help": option.help, "show_default": _show_default(option)}
    if option.name == _MODEL and not is_model_flag:
        kind: Any = Annotated[str | None, typer.Argument(metavar="MODEL", **shown)]
    elif option.kind == "switch":
        kind = Annotated[bool | None, typer.Option(f"{option.flag}/--no-{option.flag.removeprefix('--')}", **shown)]
    elif option.is_repeatable:
        kind = Annotated[list[str] | None, typer.Option(option.flag, metavar=_metavar(option), **shown)]
    else:
        kind = Annotated[str | None, typer.Option(option.flag, metavar=_metavar(option), **shown)]
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _show_default(option: Option) -> str | bool:
    if option.default is None:
        return False
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return str(option.default)


def _metavar(option: Option) -> str:
    if option.choices:
        return "|".join(option.choices)
    if option.kind == "text":
        words = re.sub(r",? or an? (\w+)$", lambda match: f"|{match[1].upper()}", option.metavar).replace(", ", "|")
        return words if "|" in words else re.sub(r"^an? ", "", words).partition(" ")[0].upper() or "TEXT"
    word = "N" if option.kind == "whole" else "X"
    return f"{word}|auto" if option.default == AUTO else word
