"""The guard process: `python -m slipstream.text.grammar.guarded`. Compiles what it is sent and says how it went.

It ends when its standard input does, so it never outlives the process that started it, even in the middle of a
compilation. Not here: what a failure means to a request (guard).
"""

from __future__ import annotations

import os
import queue
import random
import resource
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec
from llguidance import LLTokenizer

from slipstream.text.grammar.backend import Vocabulary, build_tokenizer, explain_error, start_matcher
from slipstream.text.grammar.guard import GuardReply, GuardStart, read_frame, write_frame

NUM_REHEARSED_TOKENS = 12
STACK_BYTES = 1 << 20
"""Less than any thread has that compiles afterwards, so that what fits here fits there."""


class GreedySpelling:
    """Spell text by the longest tokens. Not the model's own spelling; enough for a trial."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        control = frozenset(vocabulary.control_ids)
        self._ids = {token: id_ for id_, token in enumerate(vocabulary.tokens) if token and id_ not in control}
        self._longest = max(map(len, self._ids), default=0)

    def __call__(self, text: str) -> Sequence[int]:
        """Return the ids of a text; a byte without a token is left out."""
        rest = text.encode("utf-8")
        ids: list[int] = []
        while rest:
            sizes = range(min(self._longest, len(rest)), 0, -1)
            size = next((size for size in sizes if rest[:size] in self._ids), 0)
            if size:
                ids.append(self._ids[rest[:size]])
            rest = rest[size or 1 :]
        return ids


def rehearse(tokenizer: LLTokenizer, grammar: str, eos_ids: Sequence[int]) -> str | None:
    """Compile a grammar and walk a few tokens into it.

    Args:
        tokenizer: the library's tokenizer.
        grammar: in the library's syntax.
        eos_ids: ids that end the walk.

    Returns:
        Why it is not usable, or None.
    """
    matcher = start_matcher(tokenizer, grammar)
    draws = random.Random(0)
    ends = sum(1 << id_ for id_ in eos_ids)
    for _ in range(NUM_REHEARSED_TOKENS):
        if (error := explain_error(matcher)) is not None:
            return error
        mask = int.from_bytes(matcher.compute_bitmask(), "little") if not matcher.is_stopped() else ends
        if (error := explain_error(matcher)) is not None:
            return f"no text satisfies it, or it is too complex: {error}"
        inner = mask & ~ends
        if not mask:
            return "no text satisfies it"
        if not inner:
            return None
        matcher.consume_token(_choose(inner, draws))
    return explain_error(matcher)


def _choose(mask: int, draws: random.Random) -> int:
    """Return the first allowed token at or after a random place."""
    rest = mask >> (place := draws.randrange(mask.bit_length()))
    return place + (rest & -rest).bit_length() - 1


def _serve(start: GuardStart, grammars: queue.SimpleQueue[str], output: int) -> None:
    try:
        tokenizer = build_tokenizer(start.vocabulary, GreedySpelling(start.vocabulary))
        write_frame(output, GuardReply())
        _silence_and_limit(start.max_compile_bytes)
        while True:
            write_frame(output, GuardReply(rehearse(tokenizer, grammars.get(), start.vocabulary.eos_ids)))
    finally:
        # Also after an error: a process that does not answer is worse than none.
        traceback.print_exc()
        os._exit(1)


def _silence_and_limit(max_compile_bytes: int) -> None:
    """Bound memory from here on; a grammar that breaks it ends the process without words or a core file."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = held + max_compile_bytes if hard == resource.RLIM_INFINITY else min(held + max_compile_bytes, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Read messages until the end of standard input, then end at once."""
    first = read_frame(0)
    if first is None:
        return
    start = msgspec.msgpack.decode(first, type=GuardStart)
    # Whatever the library prints must not get between the frames.
    output = os.dup(1)
    os.dup2(2, 1)
    grammars: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.stack_size(STACK_BYTES)
    threading.Thread(target=_serve, args=(start, grammars, output), name="rehearse", daemon=True).start()
    while (body := read_frame(0)) is not None:
        grammars.put(msgspec.msgpack.decode(body, type=str))
    os._exit(0)


if __name__ == "__main__":
    main()
