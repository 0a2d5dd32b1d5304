"""Write a specification in the library's own syntax. Torch-free and free of the model; one text per specification."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec
from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark

from slipstream.base.errors import RequestError
from slipstream.text.grammar.lark import check_lark, is_ebnf
from slipstream.text.grammar.limits import GrammarLimits, check_schema, check_size, read_schemas, refuse_large
from slipstream.text.grammar.refusals.keywords import check_keywords
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.grammar import OWN_OPTIONS, GrammarSpec

MAX_INDENT = 16
"""Deepest indentation of a line of JSON. Between two parts is at most one blank, or one line break and so many blanks:
what writers of JSON produce. Free white space is how a weak model fills its budget, blank after blank.
"""

_JSON_OPTIONS = {
    "whitespace_pattern": rf"\x20|\x0A\x20{{0,{MAX_INDENT}}}",
    "json_allow_general_unicode_escapes": True,
    # Unknown rules are errors, never ignored.
    "lenient": False,
    "coerce_one_of": False,
}
_FREE_TEXT = r"TEXT: /(?s:.*)/"


class LoweredGrammar(msgspec.Struct, frozen=True):
    """A grammar as the library reads it.

    Args:
        text: the grammar.
        control_ids: control tokens that it uses; every other one is forbidden.
    """

    text: str
    control_ids: frozenset[int] = frozenset()


def lower_spec(spec: GrammarSpec, tokenizer: Tokenizer, limits: GrammarLimits) -> LoweredGrammar:
    """Return a specification in the library's syntax, checked against the limits.

    Raises:
        RequestError: it is too large, or malformed in a way that shows without compiling it.
    """
    check_size(spec, limits)
    if spec.kind in ("json_schema", "structural"):
        for schema in read_schemas(spec):
            check_schema(spec.kind, schema, limits)
            check_keywords(spec.kind, schema)
    if spec.kind == "json_object":
        return LoweredGrammar(_lower_schema({"type": "object"}))
    if spec.kind == "json_schema":
        return LoweredGrammar(_lower_schema(json.loads(spec.text)))
    if spec.kind == "regex":
        return LoweredGrammar(LLMatcher.grammar_from_regex(spec.text))
    if spec.kind == "choice":
        # One terminal rather than alternatives of a rule, which the parser would follow one by one.
        texts = " | ".join(json.dumps(text) for text in json.loads(spec.text))
        return LoweredGrammar(LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}"))
    if spec.kind == "structural":
        return _lower_structural(json.loads(spec.text), tokenizer)
    source = _read_grammar(spec.text, limits)
    named = check_lark(source, tokenizer.control_ids, frozenset(tokenizer.eos_token_ids), limits)
    return LoweredGrammar(LLMatcher.grammar_from_lark(source), named)


def split_control(text: str, tokenizer: Tokenizer) -> list[str | int]:
    """Return a text as plain strings and ids of control tokens, in order."""
    control = frozenset(tokenizer.control_ids.values())
    parts: list[str | int] = []
    plain = b""
    for id_ in tokenizer.encode(text):
        if id_ not in control:
            plain += tokenizer.token_bytes(id_)
            continue
        if plain:
            parts.append(plain.decode("utf-8"))
        parts.append(id_)
        plain = b""
    if plain:
        parts.append(plain.decode("utf-8"))
    return parts


def _lower_schema(schema: Any) -> str:
    return LLMatcher.grammar_from_json_schema(json.dumps({**_spell_out(schema), OWN_OPTIONS: _JSON_OPTIONS}))


def _read_grammar(source: str, limits: GrammarLimits) -> str:
    """Return the grammar as Lark."""
    if not is_ebnf(source):
        return source
    if len(source.encode("utf-8")) > limits.max_ebnf_bytes:
        refuse_large(
            f"grammar: in EBNF (::=) at most {limits.max_ebnf_bytes} bytes are allowed: send a smaller one, or Lark"
        )
    try:
        return gbnf_to_lark(source)
    except RecursionError:
        refuse_large("grammar: groups are nested too deeply: name them as rules")
    except Exception as error:
        raise RequestError(f"grammar: the EBNF cannot be read: {error}", code="invalid_grammar") from error


def _lower_structural(value: dict[str, Any], tokenizer: Tokenizer) -> LoweredGrammar:
    """Write `(free text, trigger, rest of one structure)*, free text`.

    A trigger that is a control token also counts when it is spelled as ordinary text, as a reader of the text could
    not tell the two apart.
    """
    rules: list[str] = []
    triggers: list[str] = value["triggers"]
    used: set[int] = set()
    left = list(value["structures"])
    for place, trigger in enumerate(triggers):
        mine = [structure for structure in left if structure["begin"].startswith(trigger)]
        left = [structure for structure in left if structure not in mine]
        if not mine:
            _refuse(f"no structure begins with the trigger {trigger!r}: remove it")
        parts = split_control(trigger, tokenizer)
        if len(parts) != 1:
            _refuse(f"the trigger {trigger!r} mixes text and control tokens: give one control token, or text")
        rules.append(f"plain_{place}[lazy]: TEXT {json.dumps(trigger)}")
        heads = [f"plain_{place}"]
        if isinstance(parts[0], int):
            used.add(parts[0])
            heads.append(f"TEXT <[{parts[0]}]>")
        bodies = [_lower_structure(structure, trigger, tokenizer, used) for structure in mine]
        rules += [f"body_{place}_{number}: {body}" for number, body in enumerate(bodies)]
        choices = " | ".join(f"body_{place}_{number}" for number in range(len(bodies)))
        rules.append(f"segment_{place}: ({' | '.join(heads)}) ({choices})")
    if left:
        _refuse(f"the structure that begins with {left[0]['begin']!r} has no trigger: add one")
    if used & frozenset(tokenizer.eos_token_ids):
        _refuse("a trigger, begin or end holds the end token: leave it out")
    segments = " | ".join(f"segment_{place}" for place in range(len(triggers)))
    source = "\n".join([f"start: ({segments})* tail", "tail: TEXT", _FREE_TEXT, *rules])
    return LoweredGrammar(LLMatcher.grammar_from_lark(source), frozenset(used))


def _lower_structure(structure: dict[str, Any], trigger: str, tokenizer: Tokenizer, used: set[int]) -> str:
    pieces: list[str] = []
    inline = f"%json {json.dumps({**_spell_out(structure['schema']), OWN_OPTIONS: _JSON_OPTIONS})}"
    for text in (structure["begin"][len(trigger) :], None, structure["end"]):
        if text is None:
            pieces.append(inline)
            continue
        for part in split_control(text, tokenizer):
            pieces.append(json.dumps(part) if isinstance(part, str) else f"<[{part}]>")
            if isinstance(part, int):
                used.add(part)
    return " ".join(pieces)


def _spell_out(schema: dict[str, Any] | bool) -> dict[str, Any]:
    """Return a schema as an object, which can carry options."""
    if schema is False:
        raise RequestError("a schema is false, which no value satisfies", code="invalid_grammar")
    return schema if isinstance(schema, dict) else {}


def _refuse(reason: str) -> NoReturn:
    raise RequestError(f"structural: {reason}", code="invalid_grammar")
