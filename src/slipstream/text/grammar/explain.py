"""Why a constraint cannot be used, in the words of whoever sent it: the library speaks of grammars that it never saw.

Schemas, calls of tools and structures are written as grammars here; errors about those name lines that nobody sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from slipstream.base.errors import RequestError
from slipstream.text.grammar.lark import is_ebnf, read_lark
from slipstream.text.grammar.refusals.keywords import regex_refusal, walk
from slipstream.wire.grammar import GrammarSpec

UNUSABLE = "the constraint cannot be used: "
"""What an error of the library is announced with before it is put into other words."""

_MAX_PLACES = 3
_MAX_CHARS = 400
_AT = re.compile(r"^at \d+\(\d+\): ")
_REGEX_ERROR = re.compile(r"regex parse error:\n(?P<lines>.*?)^error: (?P<what>[^\n]*)", re.DOTALL | re.MULTILINE)
_LISTING = re.compile(r"\n\s+\d+ \| .*", re.DOTALL)


def refusal_of(spec: GrammarSpec, reason: str) -> RequestError:
    """Return the error for a constraint that cannot be used.

    Args:
        spec: the constraint.
        reason: the library's, with or without `UNUSABLE` in front.
    """
    reason = reason.removeprefix(UNUSABLE)
    what = "the calls of the tools" if spec.is_own else spec.kind
    return RequestError(f"{what}: {_retold(spec, reason)}", code="invalid_grammar")


def _retold(spec: GrammarSpec, reason: str) -> str:
    if spec.kind == "regex" and (told := regex_refusal(spec.text)) is not None:
        return told
    if (found := _REGEX_ERROR.search(reason)) is not None:
        shown = "" if spec.is_own else f" {found['lines'].strip().splitlines()[0].strip()[:120]!r}"
        return f"the regular expression{shown} cannot be read: {found['what']}: correct it"
    if reason.startswith("no text satisfies it"):
        return "no text satisfies it, or it is too complex: loosen or simplify it"
    core = _AT.sub("", reason).removeprefix("failed to compile JSON schema: ")
    short = _LISTING.sub("", core).partition("; following special tokens")[0].strip()
    short = short.replace("json-schema:///", "")[:_MAX_CHARS]
    if "coerce_one_of" in short:
        return (
            f"oneOf{_places(spec)} cannot be enforced: its cases must differ by type, by text constants, or by a "
            "member with a different text constant in each; give anyOf, or enum for constants"
        )
    if short.startswith("Resource "):
        return "a $ref leads outside of the schema, and nothing is fetched: put what it means into $defs"
    if short.startswith("Unsatisfiable schema"):
        return f"no value satisfies the schema ({short.partition(': ')[2]}): loosen it"
    # A reader of Lark knows the lines of the grammar; one of EBNF, a schema or a tool has sent none.
    if spec.kind == "grammar" and not spec.is_own and not is_ebnf(spec.text):
        return f"{reason.partition('; following special tokens')[0][:_MAX_CHARS]}: correct the grammar"
    return f"{short}: correct it"


def _places(spec: GrammarSpec) -> str:
    found = [path for schema in _schemas(spec) for path, node in walk(schema) if "oneOf" in node]
    more = " and others" if len(found) > _MAX_PLACES else ""
    return f" at {', '.join(found[:_MAX_PLACES])}{more}" if found and not spec.is_own else ""


def _schemas(spec: GrammarSpec) -> Iterator[object]:
    if spec.kind == "json_schema":
        yield json.loads(spec.text)
    elif spec.kind == "structural":
        yield from (structure["schema"] for structure in json.loads(spec.text)["structures"])
    elif spec.kind == "grammar":
        yield from read_lark(spec.text).schemas
