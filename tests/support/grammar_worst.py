"""Grammars that cost more than anybody should pay, in the library's syntax; past the static limits on purpose."""

from __future__ import annotations

from llguidance import LLMatcher

FINE = LLMatcher.grammar_from_regex("[a-z]{1,5}")

ENDLESS = LLMatcher.grammar_from_lark(
    "start: T\nT: " + " & ".join(rf"/(.|\n)*a.{{{place}}}b(.|\n)*/" for place in range(1, 24))
)
"""About a minute and two gigabytes: one derivative of 23 regexes that must hold together."""

HUNGRY = LLMatcher.grammar_from_regex("a?" * 16_000)
"""About a gigabyte for its first masks."""

STACKED = LLMatcher.grammar_from_lark(
    "start: r0\n" + "".join(f"r{place}: r{place + 1}\n" for place in range(8000)) + 'r8000: "z"\n'
)
"""Overflows the stack of any thread."""

TALL = LLMatcher.grammar_from_lark(
    "start: T0\n" + "".join(f'T{place}: "a" T{place + 1} | "b"\n' for place in range(1000)) + 'T1000: "z"\n'
)
"""Fits the stack of a main thread, but not the smaller one of the guard process, nor of every worker thread."""

LATE_LIMIT = {
    "type": "object",
    "properties": {
        "head": {"const": "let us think about it for a while, then answer " * 6},
        "body": {"type": ["object", "null"], "properties": {f"p{place}": {"type": "null"} for place in range(600)}},
    },
    "required": ["head", "body"],
    "additionalProperties": False,
}
"""A schema that compiles and starts well; where the object `body` opens, the library's limit on items is passed."""
