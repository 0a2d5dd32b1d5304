"""A compiler that is built at its first use: tables of a large vocabulary take seconds to make.

Not here: compiling (compiler), the thread that pays (compile_queue).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from slipstream.base.errors import CheckpointError, OverloadedError, UnsupportedFeature
from slipstream.text.grammar.boundary import ReasoningEnd
from slipstream.text.grammar.compiler import CompiledGrammar, GrammarCompiler
from slipstream.text.grammar.deferred import DeferredMatcher
from slipstream.text.grammar.matcher import LadderMatcher
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.request import GrammarStart


class CompilerParts(NamedTuple):
    """What is built once per checkpoint."""

    compiler: GrammarCompiler
    end: ReasoningEnd


def load_parts(folder: Path | str, vocab_size: int, eos_ids: tuple[int, ...]) -> CompilerParts:
    """Load the tokenizer of a checkpoint and build a compiler for it; no process is started yet.

    Args:
        folder: of the checkpoint.
        vocab_size: width of the model's logits.
        eos_ids: ids that end an answer; empty means the tokenizer's own.

    Raises:
        CheckpointError: there is no tokenizer, or none that constraints can be followed with.
    """
    tokenizer = Tokenizer.load(folder)
    compiler = GrammarCompiler(tokenizer, vocab_size=vocab_size, eos_ids=eos_ids)
    return CompilerParts(compiler, ReasoningEnd(tokenizer, vocab_size, eos_ids=eos_ids))


class LazyCompiler:
    """A `SpecCompiler` that is built when it is first needed. Thread-safe.

    Args:
        build: makes the parts; called at most once.
    """

    def __init__(self, build: Callable[[], CompilerParts]) -> None:
        self._build = build
        self._parts: CompilerParts | None = None
        self._refusal: str | None = None
        self._is_closed = False
        self._build_lock = threading.Lock()
        self._close_lock = threading.Lock()

    @property
    def guard_pid(self) -> int | None:
        """Process id of the process that grammars are tried in, while one runs."""
        return None if self._parts is None else self._parts.compiler.guard.pid

    def find(self, spec: GrammarSpec) -> CompiledGrammar | None:
        """Return a grammar that is compiled already, or None. Never blocks for long."""
        return None if self._parts is None else self._parts.compiler.find(spec)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Return the compiled grammar of a specification, as `GrammarCompiler.compile` does.

        Raises:
            UnsupportedFeature: the checkpoint has no tokenizer, or none that constraints can be followed with.
            OverloadedError: this compiler is closed.
        """
        return self._load().compiler.compile(spec)

    def start(self) -> None:
        """Build now, and start the process that grammars are tried in."""
        self._load().compiler.start()

    def match(self, grammar: CompiledGrammar, starts: GrammarStart) -> LadderMatcher:
        """Return a matcher for one answer. Takes microseconds.

        Args:
            grammar: compiled here.
            starts: where it begins.
        """
        if starts == "answer":
            return grammar.start()
        assert self._parts is not None, "a grammar that was compiled here"
        return DeferredMatcher(grammar.start(), self._parts.end)

    def close(self) -> None:
        """End the process that grammars are tried in, and with it a trial in progress. May be called twice."""
        with self._close_lock:
            self._is_closed = True
            parts = self._parts
        if parts is not None:
            parts.compiler.close()

    def _load(self) -> CompilerParts:
        with self._build_lock:
            if self._parts is None:
                self._check_open()
                if self._refusal is not None:
                    raise UnsupportedFeature(self._refusal, code="no_structured_output")
                try:
                    parts = self._build()
                except CheckpointError as error:
                    self._refusal = f"structured output is not possible with this checkpoint: {error}"
                    raise UnsupportedFeature(self._refusal, code="no_structured_output") from error
                with self._close_lock:
                    self._parts = parts
                    # Closed while it was built: there is no process to end yet, and there must never be one.
                    if self._is_closed:
                        parts.compiler.close()
            return self._parts

    def _check_open(self) -> None:
        if self._is_closed:
            raise OverloadedError("structured output is shutting down: no constraint is compiled any more")
