"""Requests whose text has a form, and how to tell whether an answer has it, without the product's own grammar code."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import jsonschema

_WORD = {"type": "string", "pattern": "^[A-Z][a-z]{1,11}$"}
ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 9999}},
    "required": ["answer"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {"name": _WORD, "age": {"type": "integer", "minimum": 1, "maximum": 120}, "city": _WORD},
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
NESTED = {
    "type": "object",
    "properties": {"name": _WORD, "who": {"$ref": "#/$defs/who"}},
    "required": ["name", "who"],
    "additionalProperties": False,
    "$defs": {
        "who": {"type": "object", "properties": {"name": _WORD}, "required": ["name"], "additionalProperties": False}
    },
}
LISTED = {
    "type": "array",
    "minItems": 2,
    "maxItems": 4,
    "items": {"anyOf": [{"type": "null"}, {"enum": [1, "two", False]}]},
}
REGEX = r"(Yes|No): [0-9]{1,4} (apples|eggs|stamps|cards)\."
CHOICES = ["forty-two", "I do not know", "{}", "</mm:think>", "42"]
GRAMMAR = 'start: item ("," item)? "."\nitem: NAME "=" NUMBER\nNAME: /[a-z]{1,6}/\nNUMBER: /[0-9]{1,4}/'

PROBLEMS = (
    "Anna has 12 apples. She gives 5 apples to Ben. How many apples does Anna have left?",
    "A shop has 6 boxes with 7 eggs each. It sells 9 eggs. How many eggs are left?",
    "Nora carries 8 trays with 9 stamps each and drops 4 stamps. How many stamps does Nora still have?",
    "Priya collects 13 ribbons on one day and 17 on the next. How many ribbons did Priya collect?",
    "What is 27 plus 15?",
)
SENTENCES = (
    "Extract name, age and city as JSON.\n\nMaria is 34 years old and lives in Oslo.",
    "Turn this into JSON with the keys name, age and city: Clara is 51 years old and lives in Paris.",
)


class Form(NamedTuple):
    """One form of text.

    Args:
        name: of the kind.
        fields: what asks for it.
        schema: what a JSON answer must follow, or None.
        pattern: what a text must match as a whole, or None.
    """

    name: str
    fields: dict[str, Any]
    schema: dict[str, Any] | None = None
    pattern: str | None = None


def _schema_format(name: str, schema: dict[str, Any]) -> Form:
    fields = {
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}
    }
    return Form(name, fields, schema=schema)


FORMS = (
    _schema_format("answer", ANSWER),
    _schema_format("person", PERSON),
    _schema_format("nested", NESTED),
    Form("listed", {"structured_outputs": {"json": LISTED}}, schema=LISTED),
    Form("regex", {"structured_outputs": {"regex": REGEX}}, pattern=REGEX),
    Form("choice", {"structured_outputs": {"choice": CHOICES}}, pattern="|".join(map(re.escape, CHOICES))),
    Form(
        "grammar",
        {"structured_outputs": {"grammar": GRAMMAR}},
        pattern="[a-z]{1,6}=[0-9]{1,4}(,[a-z]{1,6}=[0-9]{1,4})?[.]",
    ),
    Form("json_object", {"response_format": {"type": "json_object"}}, schema={"type": "object"}),
)


def why_invalid(form: Form, text: str) -> str | None:
    """Return what is wrong with a text, or None."""
    if form.pattern is not None:
        return None if re.fullmatch(form.pattern, text) else f"{text!r} does not match {form.pattern}"
    assert form.schema is not None
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return f"{text!r} is not JSON: {error}"
    found = jsonschema.Draft202012Validator(form.schema).iter_errors(value)
    return next((f"{text!r}: {error.message}" for error in found), None)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


class Load(NamedTuple):
    """One request of the load.

    Args:
        form: what its text must be; None leaves it free.
        thinks: whether it is asked to think first.
        streams: whether the answer is streamed.
        fields: the whole request.
    """

    form: Form | None
    thinks: bool
    streams: bool
    fields: dict[str, Any]


def constrained_load(num_requests: int) -> list[Load]:
    """Return requests of all forms in turn: half of them think first, half are streamed, some greedy and some not."""
    loads = []
    for place in range(num_requests):
        turn, kind = divmod(place, len(FORMS))
        form, thinks, streams = FORMS[kind], (kind + turn) % 2 == 0, (kind // 2 + turn) % 2 == 0
        loads.append(Load(form, thinks, streams, request(form, place, thinks=thinks)))
    return loads


def request(form: Form | None, place: int, *, thinks: bool) -> dict[str, Any]:
    """Return the fields of one request."""
    # Text of any shape ends by itself only where the model knows what to write.
    is_open = form is not None and form.name in ("person", "json_object")
    words = SENTENCES[place % len(SENTENCES)] if is_open and not thinks else PROBLEMS[place % len(PROBLEMS)]
    sampling = {"temperature": 0} if place % 3 == 0 or is_open else {"temperature": 0.7, "seed": 100 + place}
    return {
        "model": "demo",
        "messages": [{"role": "user", "content": words}],
        # Wherever JSON allows it, a text may have up to 64 blanks, and this model likes them: no schema above allows
        # a text that is longer than this.
        "max_tokens": 900,
        "chat_template_kwargs": {"thinking_mode": "enabled" if thinks else "disabled"},
        **sampling,
        **(form.fields if form is not None else {}),
    }
