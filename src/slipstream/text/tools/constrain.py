"""Grammars that bind the calls of an answer: one must come, one may come, or none may.

A block of calls is as `render` writes it: members in the order of the schema, those that are required always there,
members that no schema names never. Where a call must come there is no text around the block; where one may come, text
may stand before it. Tags begin with the family's marker, which must be a control token: ordinary text can then never be
one, and no string may spell it.

Objects and lists are elements within elements where a schema names their members or items; any other place that takes
no string is JSON text, which the parser reads there as well. Strings are free text; their enum, const, pattern and
lengths hold, `format` is a comment as the standard has it. Not here: reading the answer back (parser).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from slipstream.base.errors import UnsupportedFeature
from slipstream.text.grammar.refusals.keywords import regex_refusal
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.patterns import whole_text
from slipstream.text.tools.places import Place
from slipstream.text.tools.schema import Tool, ToolChoice, ToolSet
from slipstream.text.tools.syntax import BLOCK, INVOKE, ITEM, NAMESPACE, Tag
from slipstream.text.tools.values import TextValue
from slipstream.text.tools.without import text_without
from slipstream.wire.grammar import GrammarSpec

_FIRST_OF = {"null": "n", "boolean": "tf", "integer": r"0-9\-", "number": r"0-9\-", "array": r"\[", "object": "{"}
"""What a value that is no string begins with, as members of a character class."""

_BLANKS = r" \t\r\n"
_IN_SLASHES = re.compile(r"\\.|/|\n", re.DOTALL)


def call_grammar(tools: ToolSet, choice: ToolChoice, tokenizer: Tokenizer, *, is_parallel: bool = True) -> GrammarSpec:
    """Return the grammar of an answer that must be a call, or with the choice `auto` of one that may hold calls.

    Args:
        tools: the tools of the request.
        choice: required, named or auto.
        tokenizer: its control tokens are named in the grammar by their ids.
        is_parallel: whether the block may hold more than one call.

    Raises:
        UnsupportedFeature: a schema asks for something that the syntax cannot carry, or the tokenizer has no marker.
    """
    if NAMESPACE not in tokenizer.control_ids:
        raise UnsupportedFeature(
            f"tool_choice={choice.mode!r}: this checkpoint's tokenizer has no token for the marker of tool calls, so "
            "no call can be bound to a schema: give tool_choice 'auto', and no tool with strict",
            param="tool_choice",
        )
    writer = _Writer(tokenizer)
    calls = " | ".join(writer.call(tool) for tool in tools.tools if choice.name in (None, tool.name))
    repeat = "call+" if is_parallel else "call"
    block = f"{writer.tag(BLOCK)} {repeat} {writer.tag(BLOCK, is_closing=True)}"
    start = f"start: TEXT? ({block})?" if choice.mode == "auto" else f"start: {block}"
    return GrammarSpec("grammar", "\n".join([start, f"call: {calls}", *writer.lines]), is_own=True)


def text_grammar() -> GrammarSpec:
    """Return the grammar of an answer without calls, for a tokenizer that has no token for their marker."""
    return GrammarSpec("regex", f"(?:{text_without(NAMESPACE)})?", is_own=True)


class _Writer:
    """Collects the rules and terminals of one grammar."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._control = frozenset(tokenizer.control_ids.values())
        self._terminals: dict[str, str] = {}
        self._rules: dict[tuple[int, int], str] = {}
        self._num_rules = 0
        self.lines = [f"TEXT: /{text_without(NAMESPACE)}/"]

    def tag(self, name: str, *, is_closing: bool = False) -> str:
        """Return a tag as the tokenizer writes it: control tokens by id, the rest as text."""
        parts: list[str] = []
        plain = b""
        for id_ in self._tokenizer.encode(Tag(name, is_closing=is_closing).source):
            if id_ not in self._control:
                plain += self._tokenizer.token_bytes(id_)
                continue
            parts += [_quote(plain.decode("utf-8"))] if plain else []
            parts.append(f"<[{id_}]>")
            plain = b""
        return " ".join([*parts, _quote(plain.decode("utf-8"))] if plain else parts)

    def call(self, tool: Tool) -> str:
        """Return the name of the rule of a call of one function."""
        place = Place(tool.parameters, tool.parameters, tool.name)
        node = place.only_node()
        if node is None or not place.is_plain_object(node):
            place.refuse("is not plainly an object with named properties, as the arguments of a call are")
        head, close = self.tag(f'{INVOKE} name="{tool.name}"'), self.tag(INVOKE, is_closing=True)
        name = self._new_name()
        self.lines.append(f"{name}: {head} {self._members(place, node)} {close}")
        return name

    def _members(self, place: Place, node: Mapping[str, Any]) -> str:
        properties, required = node.get("properties", {}), node.get("required", [])
        parts: list[str] = []
        for name in dict.fromkeys((*properties, *required)):
            member = place.member(name)
            is_required = name in required
            if member.nodes:
                parts.append(self._element(name, member) + ("" if is_required else "?"))
            elif is_required:
                member.refuse("is false, and the member is required")
        return " ".join(parts)

    def _element(self, name: str, place: Place) -> str:
        return f"({self.tag(name)} {self._value(place)} {self.tag(name, is_closing=True)})"

    def _value(self, place: Place) -> str:
        """Return the name of the rule of a value; a schema that holds itself gives a rule that does."""
        if place.key not in self._rules:
            name = self._rules[place.key] = self._new_name()
            self.lines.append(f"{name}: {self._alternatives(place)}")
        return self._rules[place.key]

    def _alternatives(self, place: Place) -> str:
        if place.is_free:
            return "TEXT?"
        if "string" in place.types:
            return self._with_strings(place)
        node, types = place.only_node(), place.types - {"null"}
        null = ' | "null"' if "null" in place.types else ""
        if node is not None and types == {"object"} and node.get("properties") and place.is_plain_object(node):
            return (self._members(place, node) or '""') + null
        if node is not None and types == {"array"} and place.is_plain_list(node):
            counts = f"{{{node.get('minItems', 0)},{node.get('maxItems', '')}}}"
            return f"{self._element(ITEM, place.item())}{counts}{null}"
        return f"%json {json.dumps(place.as_json())}"

    def _with_strings(self, place: Place) -> str:
        """Return what may stand where strings may: bare text, and other values as JSON."""
        written: list[str] = []
        for node in place.nodes:
            values = [node["const"]] if "const" in node else node.get("enum")
            if isinstance(values, list):
                written += _listed(place, values)
                continue
            types = place.types_of(node)
            if "string" in types:
                written.append(self._string(place, node))
            if others := types - {"string", "null"}:
                written.append(f"%json {json.dumps(place.as_json(node, others))}")
            written += ['"null"'] if "null" in types else []
        return "TEXT?" if "TEXT?" in written else " | ".join(dict.fromkeys(written))

    def _string(self, place: Place, node: Mapping[str, Any]) -> str:
        """Return text that is read as a string at this place, or as null where that may stand as well."""
        rules = place.string_rules(node)
        others = place.types - {"string"}
        if not others - {"null"}:
            return self._bounded(place, rules) if rules else "TEXT?"
        if rules:
            place.refuse("gives a string beside other types a pattern or a length, which cannot be enforced")
        # Neither blanks, which do not count in front of other values, nor the marker's first character.
        first = "".join(_FIRST_OF[name] for name in sorted(others))
        start = self._terminal(rf"/[^\]{_BLANKS}{first}]/")
        return f"{start} TEXT?"

    def _bounded(self, place: Place, rules: Mapping[str, Any]) -> str:
        least, most, pattern = rules.get("minLength", 0), rules.get("maxLength"), rules.get("pattern")
        whole = None if pattern is None else _whole_text(place, pattern)
        may_be_empty = not least and (whole is None or _matches_nothing(whole))
        if most == 0:
            return '""'
        regexes = [] if whole is None else [f"/{_IN_SLASHES.sub(_escape, whole)}/"]
        if least or most is not None:
            regexes.append(rf"/(?s:.){{{max(least, 1)},{'' if most is None else most}}}/")
        # Text too short to hold the marker needs no rule against it.
        is_short = most is not None and most < len(NAMESPACE)
        name = self._terminal(" & ".join(regexes if is_short else ["TEXT", *regexes]))
        return f"{name}?" if may_be_empty else name

    def _terminal(self, source: str) -> str:
        if source not in self._terminals:
            self._terminals[source] = f"T{len(self._terminals)}"
            self.lines.append(f"{self._terminals[source]}: {source}")
        return self._terminals[source]

    def _new_name(self) -> str:
        self._num_rules += 1
        return f"r{self._num_rules}"


def _listed(place: Place, values: list[Any]) -> list[str]:
    """Return the values as text, those that are read back as themselves."""
    written: list[str] = []
    for value in values:
        text = value if isinstance(value, str) else json.dumps(value)
        reader = TextValue(place.types)
        read = json.loads(reader.feed(text) + reader.close())
        if NAMESPACE not in text and (type(read), read) == (type(value), value):
            written.append(_quote(text))
    if not written:
        place.refuse("lists only values that cannot be written as the text of a call")
    return written


def _whole_text(place: Place, pattern: object) -> str:
    if isinstance(pattern, str) and (reason := regex_refusal(pattern)) is not None:
        place.refuse(f"has the pattern {pattern[:60]!r}: {reason}")
    regex = whole_text(pattern) if isinstance(pattern, str) else None
    if regex is None:
        place.refuse(f"has the pattern {str(pattern)[:60]!r}, whose anchors are not at its beginning and end")
    return regex


def _matches_nothing(regex: str) -> bool:
    """Return whether a regex matches the empty text; one that is not understood here does not."""
    try:
        return re.fullmatch(regex, "") is not None
    except re.error:
        return False


def _escape(found: re.Match[str]) -> str:
    return {"/": r"\/", "\n": r"\n"}.get(found[0], found[0])


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
