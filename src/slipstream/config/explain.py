"""The configuration as a table: every value, where it came from and why, and where the bytes go.

Works on a machine without a GPU and without loading anything. Not here: printing; the command line does that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from slipstream.config.bytes import BYTES_OF_DTYPE, CacheGeometry, FixedBytes, cache_geometry, fixed_bytes
from slipstream.config.capacity import pages_for
from slipstream.config.resolve import config_digest
from slipstream.config.schema import EngineConfig

_SECRET_FIELDS = ("server.api_keys",)


class ExplainRow(NamedTuple):
    """One line: a value, where it came from (default, option, checkpoint, ...) and why."""

    section: str
    name: str
    value: str
    origin: str
    note: str


def geometry_of(config: EngineConfig) -> CacheGeometry:
    """Return the cache of one rank of an engine with this configuration."""
    return cache_geometry(
        config.model.target,
        config.speculation.eagle3,
        dtype=config.model.dtype,
        kv_dtype=config.cache.kv_dtype,
        page_size=config.cache.page_size,
        num_pages=config.cache.num_pages,
        tp_size=config.parallel.tp_size,
    )


def fixed_bytes_of(config: EngineConfig) -> FixedBytes:
    """Return what one rank of an engine with this configuration allocates beside its pools."""
    return fixed_bytes(
        config.model.target,
        config.speculation.eagle3,
        geometry_of(config),
        dtype=config.model.dtype,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_model_len=config.scheduler.max_model_len,
        draft_len=config.speculation.draft_len,
        tp_size=config.parallel.tp_size,
        keeps_draft_probs=config.speculation.keeps_draft_probs,
    )


def explain_rows(config: EngineConfig) -> tuple[ExplainRow, ...]:
    """Return every value with its origin, then the bytes, then the digest."""
    origins, notes = dict(config.origins), dict(config.notes)
    rows: list[ExplainRow] = []
    for path, value in _leaves(config):
        section, _, name = path.partition(".")
        if not name:
            section, name = "engine", path
        origin, note = _lookup(origins, path), notes.get(path, "")
        parent = path.rpartition(".")[0]
        if not note and parent in notes and not any(row.note == notes[parent] for row in rows):
            note = notes[parent]
        shown = "***" if path in _SECRET_FIELDS and value else _text(value)
        rows.append(ExplainRow(section, name, shown, origin, note))
    rows.extend(byte_rows(config))
    rows.append(ExplainRow("digest", "config", config_digest(config), "derived", "equal digests take equal decisions"))
    return tuple(rows)


def byte_rows(config: EngineConfig) -> tuple[ExplainRow, ...]:
    """Return the exact byte account of weights, rows and cache."""
    geometry, fixed = geometry_of(config), fixed_bytes_of(config)
    tp_size = config.parallel.tp_size
    each = f"; this and all below on each of {tp_size} ranks" if tp_size > 1 else ""
    rows = [
        _byte_row("weights", fixed.weights, f"{_describe_weights(config)}, router as float32{each}"),
        _byte_row("drafter weights", fixed.drafter_weights, _describe_drafter_weights(config)),
        _byte_row("rotary tables", fixed.rotary_tables, f"{config.scheduler.max_model_len} positions, float32"),
        _byte_row("rows", fixed.rows, f"{config.scheduler.max_num_seqs} requests and a scratch row, history included"),
        _byte_row("page tables", fixed.page_tables, f"{len(geometry.groups)} groups, int32"),
        _byte_row("edit rows", fixed.edit_rows, "biases, penalties and forbidden sequences of requests"),
    ]
    for pool in geometry.pools:
        axes = " x ".join(str(size) for size in (pool.num_layers, *pool.page_shape))
        per = "per page" if not pool.is_per_token else f"per page, {pool.page_bytes // geometry.page_size} per token"
        note = f"{per}: {axes} x {BYTES_OF_DTYPE[pool.dtype]}, group {pool.group}"
        rows.append(_byte_row(f"pool {pool.name}", pool.page_bytes, note))
    for group in geometry.groups:
        token = geometry.group_token_bytes(group)
        rows.append(_byte_row(f"group {group}", geometry.group_page_bytes(group), f"per page; {token} per token"))
    note = f"{geometry.num_pages} pages x {geometry.page_bytes}, the null page included"
    rows.append(_byte_row("cache", geometry.total_bytes, note))
    per_request = pages_for(config.scheduler.max_model_len, geometry.page_size)
    note = f"{per_request} pages hold one request of {config.scheduler.max_model_len} tokens"
    rows.append(_byte_row("cache per full request", per_request * geometry.page_bytes, note))
    return tuple(rows)


def explain_text(config: EngineConfig) -> str:
    """Return the table as plain text, one line per value, columns aligned within a section."""
    lines: list[str] = []
    section = ""
    rows = explain_rows(config)
    for row in rows:
        if row.section != section:
            section = row.section
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        peers = [peer for peer in rows if peer.section == section]
        name, value = (max(len(getattr(peer, field)) for peer in peers) for field in ("name", "value"))
        line = f"  {row.name:<{name}}  {row.value:<{min(value, 40)}}  {row.origin:<10}  {row.note}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def _describe_weights(config: EngineConfig) -> str:
    formats = config.model.weight_formats
    if not formats:
        return f"target parameters as {config.model.dtype}"
    return f"target weights stored as {' and '.join(formats)}, held as {config.model.dtype}"


def _describe_drafter_weights(config: EngineConfig) -> str:
    if config.speculation.eagle3 is None:
        return "this drafter has none"
    return "at most: a head that shares the target's embedding or output head takes less by those tables"


def _byte_row(name: str, num_bytes: int, note: str) -> ExplainRow:
    return ExplainRow("bytes", name, str(num_bytes), "derived", note)


def _lookup(origins: dict[str, str], path: str) -> str:
    """Return the origin of a field, or of the nearest field above it."""
    while path:
        if path in origins:
            return origins[path]
        path = path.rpartition(".")[0]
    return "derived"


def _leaves(value: msgspec.Struct, prefix: str = "") -> list[tuple[str, Any]]:
    """Return (dotted path, value) of every field that is not itself a section."""
    leaves: list[tuple[str, Any]] = []
    for name in value.__struct_fields__:
        if not prefix and name in ("origins", "notes"):
            continue
        item = getattr(value, name)
        if isinstance(item, msgspec.Struct):
            leaves += _leaves(item, f"{prefix}{name}.")
        else:
            leaves.append((f"{prefix}{name}", item))
    return leaves


def _text(value: Any) -> str:
    if isinstance(value, tuple) and value and all(isinstance(item, bool) for item in value):
        return "".join("1" if item else "0" for item in value)
    if isinstance(value, tuple) and value:
        return ",".join(str(item) for item in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None or value == () else str(value)
