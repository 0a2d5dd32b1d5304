"""What is under evaluation: an engine with its tokenizer, asked through `LLM`, with a record of its verify steps.

Not here: which engines a run opens (run), and what is asked of them (measures).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import msgspec

from slipstream.config.schema import EngineConfig
from slipstream.engine.interface import SyncEngine
from slipstream.engine.spawn import start_inline
from slipstream.frontend.llm import LLM
from slipstream.frontend.processor import TextParts
from slipstream.wire.messages import EngineFacts, Outputs, ToFrontend
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams

CHUNK = 32
"""Prompts of one call: enough to fill the batch, few enough that a progress bar moves."""


class VerifyStep(msgspec.Struct, frozen=True):
    """One verify step of one request: drafts verified, drafts accepted, tokens emitted."""

    num_draft_tokens: int
    num_accepted: int
    num_emitted: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt was answered with.

    Args:
        token_ids: with the token that ended it.
        text: their text.
        steps: the verify steps that made it.
        margin: for the first token, by how much its log-probability exceeds the runner-up's; None when not asked for.
        best_ids: the two most likely first tokens, then.
    """

    token_ids: tuple[int, ...]
    text: str
    steps: tuple[VerifyStep, ...] = ()
    margin: float | None = None
    best_ids: tuple[int, ...] = ()


class Subject(Protocol):
    """An engine that can be asked."""

    @property
    def facts(self) -> EngineFacts:
        """Facts of the engine."""
        ...

    def score(self, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[float, ...]]:
        """Yield, per prompt, the natural logarithm of the probability of each token but the first."""
        ...

    def answer(
        self, prompts: Sequence[Sequence[int]], *, max_tokens: int, temperature: float = 0.0, has_margin: bool = False
    ) -> Iterator[Answer]:
        """Yield the answer to each prompt; temperature 0 is greedy."""
        ...


class Lab(Protocol):
    """Opens engines."""

    def open(self, *, model: str | None = None, drafter: str | None = None) -> AbstractContextManager[Subject]:
        """Return an engine as a context manager.

        Args:
            model: folder of the checkpoint; None is the one under evaluation.
            drafter: `none` or a head's folder; None is the run's own.
        """
        ...


class RecordingEngine:
    """An engine whose verify steps are kept, by request."""

    def __init__(self, engine: SyncEngine) -> None:
        self._engine = engine
        self.steps: dict[str, list[VerifyStep]] = defaultdict(list)

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._engine.submit(request)

    def abort(self, request_id: str) -> None:
        """End a request."""
        self._engine.abort(request_id)

    def poll(self, timeout_s: float) -> list[ToFrontend]:
        """Return the news, and remember the verify steps in it."""
        news = self._engine.poll(timeout_s)
        for message in news:
            for output in message.outputs if isinstance(message, Outputs) else ():
                if output.is_verify_step and output.token_ids:
                    step = VerifyStep(output.num_draft_tokens, output.num_accepted, len(output.token_ids))
                    self.steps[output.request_id].append(step)
        return news

    def close(self) -> None:
        """End the engine."""
        self._engine.close()


class EngineSubject:
    """A `Subject` over an engine in this process; closed by whoever opened it.

    Args:
        engine: its next message is Ready.
        text: tokenizer and template of its checkpoint.
    """

    def __init__(self, engine: SyncEngine, text: TextParts) -> None:
        self._record = RecordingEngine(engine)
        self._llm = LLM.over(self._record, text)

    @property
    def facts(self) -> EngineFacts:
        """Facts of the engine."""
        return self._llm.facts

    def score(self, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[float, ...]]:
        """Yield the log-probabilities of each prompt's tokens."""
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, ignore_eos=True)
        for chunk in _chunks(prompts):
            for made in self._llm.generate(chunk, params):
                yield made.prompt_logprobs

    def answer(
        self, prompts: Sequence[Sequence[int]], *, max_tokens: int, temperature: float = 0.0, has_margin: bool = False
    ) -> Iterator[Answer]:
        """Yield the answer to each prompt."""
        params = SamplingParams(temperature=temperature, max_tokens=max_tokens, logprobs=2 if has_margin else None)
        for chunk in _chunks(prompts):
            for made in self._llm.generate(chunk, params):
                tops = made.top_logprobs[0] if made.top_logprobs else ()
                best = sorted(tops, key=lambda top: top[1], reverse=True)
                yield Answer(
                    token_ids=made.token_ids,
                    text=made.text,
                    steps=tuple(self._record.steps.pop(made.request_id, ())),
                    margin=best[0][1] - best[1][1] if len(best) > 1 else None,
                    best_ids=tuple(token_id for token_id, _ in best[:2]),
                )

    def close(self) -> None:
        """End the engine."""
        self._llm.close()


class EngineLab:
    """A `Lab` over engines of this installation.

    Args:
        settle: returns the configuration for a checkpoint and a drafter, None meaning the run's own.
    """

    def __init__(self, settle: Callable[[str | None, str | None], EngineConfig]) -> None:
        self._settle = settle

    @contextmanager
    def open(self, *, model: str | None = None, drafter: str | None = None) -> Iterator[Subject]:
        """Start an engine, and end it behind the block."""
        config = self._settle(model, drafter)
        subject = EngineSubject(start_inline(config), TextParts.load(config.model.path))
        try:
            yield subject
        finally:
            subject.close()


def _chunks(prompts: Sequence[Sequence[int]]) -> Iterator[Any]:
    for start in range(0, len(prompts), CHUNK):
        yield [list(prompt) for prompt in prompts[start : start + CHUNK]]
