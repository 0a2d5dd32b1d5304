"""Read what a Lark grammar uses, without understanding it: control tokens, schemas, operators, options.

Only enough of the syntax is known to tell strings, regexes and comments from the rest. Whether the grammar is right
is for the library to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from slipstream.base.errors import RequestError
from slipstream.text.grammar.limits import GrammarLimits, check_schema, refuse_large
from slipstream.text.grammar.refusals.keywords import check_keywords
from slipstream.wire.grammar import OWN_OPTIONS

_PIECE = re.compile(
    r"""
      (?P<comment> (?://|\#)[^\n]* )
    | (?P<string> "(?:\\.|[^"\\\n])*" )
    | (?P<regex> /(?:\\.|[^/\\\n])+/ )
    | (?P<control> <[^<>\s]+> )
    | (?P<json> %(?:json|regex|llguidance)\b )
    | (?P<conjunction> & )
    | (?P<negation> ~(?!\s*\d) )
    | (?P<option> \b(?:stop|max_tokens|temperature)\s*= )
    """,
    re.VERBOSE | re.DOTALL,
)
_ID_LIST = re.compile(r"<\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\]>")
_SPACE = re.compile(r"\s*")


class LarkFacts(msgspec.Struct):
    """What a grammar uses, outside its strings, regexes and comments."""

    controls: list[str] = msgspec.field(default_factory=list)
    options: list[str] = msgspec.field(default_factory=list)
    schemas: list[Any] = msgspec.field(default_factory=list)
    num_conjunctions: int = 0
    num_negations: int = 0


def read_lark(source: str) -> LarkFacts:
    """Return what a grammar uses.

    Raises:
        RequestError: an inline schema is nested beyond all reason.
    """
    facts = LarkFacts()
    here = 0
    while (piece := _PIECE.search(source, here)) is not None:
        here = piece.end()
        kind = piece.lastgroup
        if kind == "control":
            facts.controls.append(piece[0])
        elif kind == "option":
            facts.options.append(piece[0].rstrip("= \t"))
        elif kind == "json":
            here = _read_inline(source, here, facts.schemas if piece[0] == "%json" else [])
        facts.num_conjunctions += kind == "conjunction"
        facts.num_negations += kind == "negation"
    return facts


def is_ebnf(source: str) -> bool:
    """Return whether a grammar's rules are written with `::=`."""
    return "::=" in _PIECE.sub("", source)


def check_lark(
    source: str, control_ids: Mapping[str, int], end_ids: frozenset[int], limits: GrammarLimits
) -> frozenset[int]:
    """Check a grammar against the limits.

    Args:
        source: the grammar.
        control_ids: the tokenizer's control tokens by name.
        end_ids: the model's own end tokens.
        limits: what is allowed.

    Returns:
        The control tokens that it names; all others stay forbidden.

    Raises:
        RequestError: it is too large somewhere, or uses something that a mask per token cannot honour.
    """
    facts = read_lark(source)
    if facts.options:
        _refuse(f"the option {facts.options[0]!r} is not allowed: rules here say what the text is, not how to draw it")
    for schema in facts.schemas:
        if isinstance(schema, dict) and OWN_OPTIONS in schema:
            _refuse(f"the key {OWN_OPTIONS!r} of an inline schema is not allowed: remove it")
        check_schema("grammar: an inline schema", schema, limits)
        check_keywords("grammar: an inline schema", schema)
    meeting = facts.num_conjunctions + facts.num_negations
    if meeting > limits.max_intersections:
        refuse_large(
            f"grammar: {meeting} operators & and ~ are given, at most {limits.max_intersections} are allowed: write "
            "the regexes without them"
        )
    named = frozenset(id_ for reference in facts.controls for id_ in _resolve(reference, control_ids))
    if named and facts.num_negations:
        _refuse("the operator ~ is not allowed beside control tokens, which it would match: use one of the two")
    if named & end_ids:
        _refuse("it names the end token: leave it out, it is allowed wherever the grammar may end")
    return named


def _resolve(reference: str, control_ids: Mapping[str, int]) -> list[int]:
    """Return the ids of `<name>` or `<[12,20-22]>`; an unknown name is left for the library to refuse."""
    if not reference.startswith("<["):
        return [control_ids[reference]] if reference in control_ids else []
    ids = _ID_LIST.fullmatch(reference)
    if ids is None:
        _refuse(f"{reference} is not allowed: name control tokens one by one, as in <[12]> or <[12,20-22]>")
    known = frozenset(control_ids.values())
    resolved: set[int] = set()
    for part in ids[1].split(","):
        first, _, last = part.partition("-")
        inside = {id_ for id_ in known if int(first) <= id_ <= int(last or first)}
        if len(inside) != int(last or first) - int(first) + 1:
            _refuse(f"{reference} covers ids that are not control tokens: write ordinary text as text")
        resolved |= inside
    return sorted(resolved)


def _read_inline(source: str, here: int, into: list[Any]) -> int:
    """Step over the JSON behind a directive; broken JSON is left for the library to refuse."""
    start = _SPACE.match(source, here)
    try:
        value, end = json.JSONDecoder().raw_decode(source, start.end() if start else here)
    except json.JSONDecodeError:
        return here
    except RecursionError:
        refuse_large("grammar: an inline schema is nested too deeply: flatten it")
    into.append(value)
    return end


def _refuse(reason: str) -> NoReturn:
    raise RequestError(f"grammar: {reason}", code="invalid_grammar")
