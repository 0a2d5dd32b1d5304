"""Small whole engines for property tests: random weights, float32, every knob an argument."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from slipstream.cache.logical.manager import CacheManager, GroupSpec
from slipstream.config.schema import EngineConfig
from slipstream.engine.core import EngineCore
from slipstream.engine.grammars import GrammarIntake, MatchingCompiler
from slipstream.models.interface import TargetModel
from slipstream.runner.build import make_runner
from slipstream.scheduler.budget import SchedulerConfig
from slipstream.scheduler.scheduler import Scheduler
from slipstream.speculation.interface import Drafter
from slipstream.wire.messages import RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams


@dataclass(frozen=True)
class Knobs:
    """What a property varies; everything else of the engine stays equal."""

    overlap: bool = False
    enable_prefix: bool = True
    prefill_chunk_tokens: int = 64
    max_num_seqs: int = 4
    num_pages: int = 200
    poison: bool = True


@dataclass
class Outcome:
    """What one request got."""

    token_ids: list[int] = field(default_factory=list)
    runs: list[RequestOutput] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def num_accepted(self) -> int:
        return sum(run.num_accepted for run in self.runs)

    @property
    def num_verify_steps(self) -> int:
        return sum(run.is_verify_step for run in self.runs)

    @property
    def acceptance_length(self) -> float:
        steps = [run for run in self.runs if run.is_verify_step]
        return sum(len(run.token_ids) for run in steps) / max(len(steps), 1)

    @property
    def num_prefix_hit_tokens(self) -> int:
        return max((run.num_prefix_hit_tokens for run in self.runs), default=0)


class TestEngine:
    """An engine core with a caller-chosen target and drafter, driven by hand."""

    __test__ = False

    def __init__(
        self,
        config: EngineConfig,
        model: TargetModel,
        drafter: Drafter,
        knobs: Knobs,
        compiler: MatchingCompiler | None = None,
    ) -> None:
        import msgspec

        config = msgspec.structs.replace(
            config,
            cache=msgspec.structs.replace(config.cache, num_pages=knobs.num_pages, poison_freed_pages=knobs.poison),
            scheduler=msgspec.structs.replace(config.scheduler, max_num_seqs=knobs.max_num_seqs),
            speculation=msgspec.structs.replace(config.speculation, draft_len=drafter.spec.draft_len),
        )
        built = make_runner(config, model, drafter)
        self.runner = built.runner
        self.cache = CacheManager(
            groups=tuple(GroupSpec(name=name, num_pages=knobs.num_pages) for name in built.geometry.groups),
            page_size=config.cache.page_size,
            salt=b"test",
            enable_prefix=knobs.enable_prefix,
        )
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=knobs.max_num_seqs,
                prefill_chunk_tokens=knobs.prefill_chunk_tokens,
                page_size=config.cache.page_size,
                max_model_len=config.scheduler.max_model_len,
                draft_len=drafter.spec.draft_len,
                max_steps_in_flight=2 if knobs.overlap else 1,
            ),
            self.cache,
            lambda: 0.0,
        )
        self.registry = built.grammars
        grammars = None if compiler is None else GrammarIntake(compiler, self.registry)
        self.core = EngineCore(self.scheduler, self.runner, overlap=knobs.overlap, grammars=grammars)
        self.outcomes: dict[str, Outcome] = {}

    def submit(self, request: Request) -> None:
        self.outcomes[request.request_id] = Outcome()
        refused = self.core.submit(request)
        assert refused is None, refused

    def turn(self) -> None:
        self.core.wait(10.0)
        for output in self.core.turn():
            self._note(output)

    def _note(self, output: RequestOutput) -> None:
        if output.is_accepted:
            return
        outcome = self.outcomes[output.request_id]
        outcome.token_ids.extend(output.token_ids)
        outcome.runs.append(output)
        outcome.finish_reason = output.finish_reason or outcome.finish_reason
        assert output.finish_reason != "error", output.error

    def run(self, requests: list[Request], *, max_turns: int = 2000) -> dict[str, Outcome]:
        for request in requests:
            self.submit(request)
        for _ in range(max_turns):
            if not self.core.has_work:
                break
            self.turn()
        assert not self.core.has_work, "the engine did not come to rest"
        return self.outcomes


def make_request(name: str, prompt: list[int], max_new: int, **sampling: object) -> Request:
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": max_new, **sampling})
    return Request(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        sampling=params,
        seed=params.seed or 0,
        max_seq_len=len(prompt) + max_new,
    )


def random_prompts(vocab_size: int, lengths: list[int], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def tokens_of(outcomes: dict[str, Outcome]) -> dict[str, list[int]]:
    return {name: outcome.token_ids for name, outcome in outcomes.items()}


__all__ = ["Knobs", "Outcome", "Path", "TestEngine", "make_request", "random_prompts", "replace", "tokens_of"]
