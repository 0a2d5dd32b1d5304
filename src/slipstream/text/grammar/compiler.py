"""Turn specifications into compiled grammars, once each. Blocking and thread-safe; call it from a worker thread.

Not here: the worker thread (compile_queue).
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from typing import Self

import numpy as np

from slipstream.base.errors import RequestError
from slipstream.text.grammar.backend import build_tokenizer, explain_error, read_vocabulary, start_matcher
from slipstream.text.grammar.bitmask import num_words, pack_tokens
from slipstream.text.grammar.explain import refusal_of
from slipstream.text.grammar.guard import CompileGuard
from slipstream.text.grammar.limits import GrammarLimits
from slipstream.text.grammar.lower import LoweredGrammar, lower_spec
from slipstream.text.grammar.matcher import GrammarFault, GrammarMatcher, MaskPlan
from slipstream.text.grammar.origin import GrammarOrigin
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.grammar import GrammarSpec


class CompiledGrammar:
    """A grammar ready to be followed, shared by all requests that ask for it.

    Args:
        spec: what it was compiled from.
        origin: the library's matcher before the first token.
        plan: masks shared by its matchers.
    """

    def __init__(self, spec: GrammarSpec, origin: GrammarOrigin, plan: MaskPlan) -> None:
        self.spec = spec
        self._origin = origin
        self._plan = plan

    @property
    def generation(self) -> int:
        """How often the library's tables filled up and were replaced."""
        return self._origin.generation

    @property
    def is_worn_out(self) -> bool:
        """Whether it has to be compiled anew for who comes next."""
        return self._origin.is_worn_out

    def start(self) -> GrammarMatcher:
        """Return a matcher for one answer. Takes microseconds."""
        return GrammarMatcher(self._origin, self._plan)


class GrammarCompiler:
    """Compile specifications for one tokenizer and one model.

    Args:
        tokenizer: the tokenizer.
        vocab_size: width of the model's logits; None means the tokenizer's own.
        eos_ids: ids that end an answer; empty means the tokenizer's own.
        limits: how large and how slow a specification may be.

    Raises:
        CheckpointError: tokenizer and model do not fit each other.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int | None = None,
        eos_ids: tuple[int, ...] = (),
        limits: GrammarLimits | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits or GrammarLimits()
        vocabulary = read_vocabulary(tokenizer, vocab_size, eos_ids)
        self.vocab_size = len(vocabulary.tokens)
        self.num_words = num_words(self.vocab_size)
        self._eos_ids = frozenset(vocabulary.eos_ids)
        self._ends = pack_tokens(vocabulary.eos_ids, self.vocab_size)
        control = frozenset(vocabulary.control_ids)
        self._text = pack_tokens((id_ for id_ in range(self.vocab_size) if id_ not in control), self.vocab_size)
        self._library = build_tokenizer(vocabulary, tokenizer.encode_plain)
        self._guard = CompileGuard(
            vocabulary, deadline_s=self._limits.deadline_s, max_compile_bytes=self._limits.max_compile_bytes
        )
        self._lock = threading.Lock()
        self._known: OrderedDict[GrammarSpec, CompiledGrammar] = OrderedDict()
        self._flights: dict[GrammarSpec, Future[CompiledGrammar]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def guard(self) -> CompileGuard:
        """The process that grammars are tried in."""
        return self._guard

    @property
    def num_cached(self) -> int:
        """Compiled grammars that are kept."""
        return len(self._known)

    def start(self) -> None:
        """Start the guard process now, so that the first request does not wait for it."""
        self._guard.start()

    def find(self, spec: GrammarSpec) -> CompiledGrammar | None:
        """Return a grammar that is compiled already, or None. Never blocks for long."""
        with self._lock:
            return self._find(spec)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Return the compiled grammar of a specification; threads that ask for the same one share the work.

        Raises:
            RequestError: too large, malformed, unsupported, unsatisfiable, or too expensive; with the reason.
            OverloadedError: the compiler is closed.
            EngineError: the guard process does not start.
        """
        with self._lock:
            known = self._find(spec)
            if known is not None:
                return known
            flight = self._flights.get(spec)
            is_mine = flight is None
            if flight is None:
                flight = self._flights[spec] = Future()
        if not is_mine:
            return flight.result()
        try:
            grammar = self._build(spec)
        except BaseException as error:
            with self._lock:
                del self._flights[spec]
            flight.set_exception(error)
            raise
        with self._lock:
            del self._flights[spec]
            self._known[spec] = grammar
            while len(self._known) > self._limits.max_cached:
                self._known.popitem(last=False)
        flight.set_result(grammar)
        return grammar

    def close(self) -> None:
        """End the guard process. Compiled grammars stay usable; new ones are refused."""
        self._guard.close()

    def _find(self, spec: GrammarSpec) -> CompiledGrammar | None:
        known = self._known.get(spec)
        if known is None or known.is_worn_out:
            return None
        self._known.move_to_end(spec)
        return known

    def _build(self, spec: GrammarSpec) -> CompiledGrammar:
        lowered = lower_spec(spec, self._tokenizer, self._limits)
        try:
            self._guard.check(lowered.text)
        except RequestError as error:
            raise refusal_of(spec, str(error)) if error.code == "invalid_grammar" else error from error
        begun_s = time.monotonic()
        first = start_matcher(self._library, lowered.text)
        if (error := explain_error(first)) is not None:
            raise refusal_of(spec, error)
        again = functools.partial(start_matcher, self._library, lowered.text)
        origin = GrammarOrigin(again, first, time.monotonic() - begun_s)
        grammar = CompiledGrammar(spec, origin, self._plan(lowered))
        try:
            grammar.start().fill_masks((), np.empty((1, self.num_words), dtype=np.int32))
        except GrammarFault as fault:
            raise refusal_of(spec, str(fault)) from fault
        return grammar

    def _plan(self, lowered: LoweredGrammar) -> MaskPlan:
        return MaskPlan(
            vocab_size=self.vocab_size,
            eos_ids=self._eos_ids,
            ends=self._ends,
            candidates=self._text | pack_tokens(lowered.control_ids, self.vocab_size),
        )
