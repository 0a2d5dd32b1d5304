"""Results as files and as tables: TOML or JSON with provenance, and aligned columns for a terminal.

Not here: drawing. A result file is data that another program can read back.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from slipstream.base.errors import ConfigError
from slipstream.harness.provenance import Provenance

SUFFIXES = (".toml", ".json")


def to_plain(value: Any) -> Any:
    """Return a value of structs as dictionaries, lists and scalars; None entries of dictionaries are left out."""
    if isinstance(value, msgspec.Struct):
        return to_plain({name: getattr(value, name) for name in value.__struct_fields__})
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def build_result(kind: str, provenance: Provenance, **parts: Any) -> dict[str, Any]:
    """Return a result as plain data: what was measured, where, and the parts."""
    facts = to_plain(provenance)
    facts["versions"] = dict(provenance.versions)
    return {"kind": kind, "provenance": facts, **to_plain(parts)}


def check_result_path(path: Path) -> None:
    """Refuse a file that `write_result` could not write, before an hour is spent on it.

    Raises:
        ConfigError: another ending, a folder, or a place that cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--out {path}: the name must end in {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise ConfigError(f"--out {path}: this is a folder; give the name of a file")
    if not is_writable(path):
        raise ConfigError(f"--out {path}: cannot be written there; give a file in a folder that can be written")


def is_writable(path: Path) -> bool:
    """Return whether a file or folder can be made, or written if it is there; missing folders count as makeable."""
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    return (nearest.is_dir() or nearest == path) and os.access(nearest, os.W_OK)


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result; the file's ending, .json or .toml, decides the format.

    Raises:
        ConfigError: another ending, or the file cannot be written.
    """
    if path.suffix == ".json":
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    elif path.suffix == ".toml":
        text = to_toml(result)
    else:
        raise ConfigError(f"cannot write results to {path}: the name must end in {' or '.join(SUFFIXES)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write results to {path} ({error.strerror}); give another file") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """Return TOML text of nested dictionaries, lists and scalars. None is not representable and is refused."""
    lines: list[str] = []
    _append_table(lines, (), table)
    return "\n".join(lines).strip() + "\n"


def _append_table(lines: list[str], path: tuple[str, ...], table: Mapping[str, Any]) -> None:
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in table.items() if _is_table_array(value)}
    for key, value in table.items():
        if key not in tables and key not in arrays:
            lines.append(f"{_key(key)} = {_scalar(value)}")
    for key, value in tables.items():
        lines += ["", f"[{_dotted((*path, key))}]"]
        _append_table(lines, (*path, key), value)
    for key, items in arrays.items():
        for item in items:
            lines += ["", f"[[{_dotted((*path, key))}]]"]
            _append_table(lines, (*path, key), item)


def _is_table_array(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _dotted(path: Sequence[str]) -> str:
    return ".".join(_key(part) for part in path)


def _key(name: str) -> str:
    is_bare = bool(name) and name.isascii() and all(c.isalnum() or c in "_-" for c in name)
    return name if is_bare else _string(name)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(k))} = {_scalar(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_scalar(item) for item in value) + "]"
    raise TypeError(f"{type(value).__name__} cannot be written as TOML")


def format_rows(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return aligned columns: the first to the left, the others to the right; None shows as a dash."""
    cells = [[str(name) for name in header], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
