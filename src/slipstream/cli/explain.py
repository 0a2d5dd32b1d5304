"""`slipstream explain`: every value that the engine would run on, where it comes from, and where the bytes go."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from slipstream.cli.arguments import with_options
from slipstream.cli.settings import settle
from slipstream.config.explain import explain_rows, explain_text
from slipstream.config.options import Options


@with_options()
def explain(
    options: Options,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show the resolved configuration with the origin of each value. Loads no weights."""
    config = settle(options)
    typer.echo(json.dumps(as_object(explain_rows(config)), indent=2) if as_json else explain_text(config), nl=as_json)


def as_object(rows: Any) -> dict[str, dict[str, dict[str, str]]]:
    """Return section -> name -> value, origin and note."""
    sections: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        entry = {"value": row.value, "origin": row.origin, "note": row.note}
        sections.setdefault(row.section, {})[row.name] = entry
    return sections
