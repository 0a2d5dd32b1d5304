"""A regular expression for text that does not hold a given string, for grammars that have no way to say `not`."""

from __future__ import annotations

import re


def text_without(string: str) -> str:
    """Return a regex of all text that is not empty and does not hold a string; line breaks are text.

    Every state of the automaton that looks for the string is taken out in turn, and what led through it becomes part
    of its neighbours' edges.

    Args:
        string: at least two characters.
    """
    edges = _edges(string)
    # The last state stands for the end of the text, which may come at any time.
    end = len(string)
    edges |= {(state, end): "" for state in range(1, end)}
    for state in range(end - 1, 0, -1):
        loop = edges.pop((state, state), None)
        again = "" if loop is None else f"(?:{loop})*"
        into = {start: edges.pop((start, state)) for start in range(state) if (start, state) in edges}
        out = {target: edges.pop((state, target)) for target in (*range(state), end) if (state, target) in edges}
        for start, head in into.items():
            for target, rest in out.items():
                known = edges.get((start, target))
                path = f"{_group(head)}{again}{_group(rest)}"
                edges[start, target] = path if known is None else f"{known}|{path}"
    body, tail = edges[0, 0], edges[0, end]
    return f"(?:(?:{body})+(?:{tail})?|{tail})"


def _edges(string: str) -> dict[tuple[int, int], str]:
    """Return the automaton whose state is how much of the string the text ends with, without its last step."""
    letters = sorted(set(string))
    edges: dict[tuple[int, int], str] = {}
    for state in range(len(string)):
        left: dict[int, list[str]] = {}
        for letter in letters:
            text = string[:state] + letter
            target = next(size for size in range(state + 1, -1, -1) if text.endswith(string[:size]))
            if target:
                left.setdefault(target, []).append(letter)
        for target, known in left.items():
            if target < len(string):
                edges[state, target] = "".join(map(re.escape, known)) if len(known) == 1 else _class(known)
        taken = [letter for known in left.values() for letter in known]
        edges[state, 0] = _class(taken, is_negated=True)
    return edges


def _class(letters: list[str], *, is_negated: bool = False) -> str:
    return f"[{'^' if is_negated else ''}{''.join(map(re.escape, sorted(letters)))}]"


def _group(regex: str) -> str:
    return f"(?:{regex})" if "|" in regex else regex
