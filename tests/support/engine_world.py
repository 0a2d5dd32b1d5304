"""One small random target with its drafters, its requests and the reference streams they must give."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.batch.step_inputs import SamplingInputs, StepInputs
from slipstream.cache.physical.pools import PagePools
from slipstream.config.bytes import build_geometry
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.config.schema import EngineConfig
from slipstream.models.interface import TargetModel
from slipstream.models.m3.model import build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import one_rank
from slipstream.runner.build import layer_caches
from slipstream.sampling.filters import filter_rows
from slipstream.sampling.noise import gumbel_noise
from slipstream.speculation.interface import DraftCache, Drafter, ObserveInputs, Proposal, ProposeInputs
from slipstream.speculation.registry import build_drafter
from slipstream.wire.request import Request
from support.drafters import (
    AlwaysWrongDrafter,
    ConstantDrafter,
    NoTokenDrafter,
    OracleDrafter,
    RandomDrafter,
    RightThenWrongDrafter,
)
from support.engines import Knobs, Outcome, TestEngine, make_request, random_prompts, tokens_of
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3

MAX_NEW = 24
DRAFT_LEN = 3
MIN_MARGIN = 1e-3
"""Least distance between the best and the second-best draw, far above float32 rounding of the logits."""

PROMPT_LENGTHS = (2, 8, 17, 33, 40, 75)
COUPLED = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.01}
MACHINE = Hardware(num_cpus=1, total_memory_bytes=8 << 30, available_memory_bytes=8 << 30, cuda_devices=())


class RecordedDrafter:
    """Passes everything to a drafter and keeps what it proposed: acceptance alone would not show a faulty draft cache,
    because a random head is hardly ever accepted."""

    def __init__(self, drafter: Drafter) -> None:
        self.spec = drafter.spec
        self._drafter = drafter
        self.proposals: dict[tuple[int, int], list[int]] = {}

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store prompt rows."""
        self._drafter.observe(inputs, cache)

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Propose, and keep the proposal by (seed of the request, position of its last token)."""
        proposal = self._drafter.propose(inputs, cache)
        ends = (inputs.base_positions + inputs.num_accepted + 1).tolist()
        for seed, end, row in zip(inputs.sampling.seed.tolist(), ends, proposal.draft_tokens.tolist(), strict=True):
            self.proposals[seed, end] = row
        return proposal


class SteeredDrafter:
    """EAGLE-3 observes and proposes as ever, and what it proposed is kept, but other drafts are handed on.

    A random head is hardly ever accepted; steered by an oracle its cache lives through accepted runs of every length.
    """

    def __init__(self, head: Drafter, steer: Drafter) -> None:
        self.spec = dataclasses.replace(head.spec, needs_history=True, has_probs=False)
        self._recorded = RecordedDrafter(head)
        self._steer = steer

    @property
    def proposals(self) -> dict[tuple[int, int], list[int]]:
        """What the head proposed."""
        return self._recorded.proposals

    def observe(self, inputs: ObserveInputs, cache: DraftCache) -> None:
        """Store prompt rows."""
        self._recorded.observe(inputs, cache)

    def propose(self, inputs: ProposeInputs, cache: DraftCache) -> Proposal:
        """Let the head propose, then hand on the steering drafts."""
        self._recorded.propose(inputs, cache)
        return self._steer.propose(inputs, cache)


class World:
    """A target, six requests, and what they must give under greedy and under coupled draws."""

    def __init__(self, folder: Path, *, head: dict[str, object] | None = None, **geometry: object) -> None:
        make_tiny_checkpoint(folder, dtype="float32", **geometry)
        self.config: EngineConfig = resolve(Options(model=str(folder), drafter="none"), MACHINE)
        drafter = make_tiny_eagle3(
            folder / "eagle3", self.config.model.target, dtype="float32", draft_vocab_size=96, **(head or {})
        )
        self.eagle_config = resolve(Options(model=str(folder), drafter=str(drafter), draft_len=DRAFT_LEN), MACHINE)
        assert self.eagle_config.speculation.eagle3 is not None
        self.aux_layer_ids = self.eagle_config.speculation.eagle3.aux_layer_ids
        self.model = self._load(folder, ())
        self.tapped_model = self._load(folder, self.aux_layer_ids)
        self.page_size = self.config.cache.page_size
        self.draft_len = DRAFT_LEN
        self.vocab_size = self.config.model.target.vocab_size
        self._streams: dict[str, dict[str, list[int]]] = {"greedy": {}, "coupled": {}}
        self._logprobs: dict[str, list[float]] = {}
        self._prompts = self._choose_prompts()

    def _load(self, folder: Path, aux_layer_ids: tuple[int, ...]) -> TargetModel:
        model = build_m3(
            self.config.model.target,
            dtype=torch.float32,
            device=torch.device("cpu"),
            group=one_rank(),
            aux_layer_ids=aux_layer_ids,
        )
        load_m3(model, folder)
        return model

    @property
    def pages_of_longest(self) -> int:
        """Pages of the longest request, drafts included."""
        return -(-(max(PROMPT_LENGTHS) + MAX_NEW) // self.page_size)

    def prompt_len(self, name: str) -> int:
        """Tokens of a request's prompt."""
        return len(self._prompts[name])

    def requests(self, mode: str, *, logprobs: int | None = None) -> list[Request]:
        """The six requests, in one order."""
        sampling = COUPLED if mode == "coupled" else {}
        return [
            make_request(name, prompt, MAX_NEW, seed=1000 + index, logprobs=logprobs, **sampling)
            for index, (name, prompt) in enumerate(self._prompts.items())
        ]

    def second_turns(self, mode: str) -> list[Request]:
        """Requests that go on from the reference answers: prompt, answer and five more tokens."""
        extra = random_prompts(self.vocab_size, [5] * len(self._prompts), seed=7)
        sampling = COUPLED if mode == "coupled" else {}
        return [
            make_request(name, self._prompts[name] + answer + more, 8, seed=1000 + index, **sampling)
            for index, ((name, answer), more) in enumerate(zip(self._streams[mode].items(), extra, strict=True))
        ]

    def churn_requests(self) -> list[Request]:
        """Other requests, which leave the free pages in another order."""
        prompts = random_prompts(self.vocab_size, [31, 3, 50, 12], seed=99)
        return [make_request(f"churn-{index}", prompt, 5 + index) for index, prompt in enumerate(prompts)]

    def reference_tokens(self, mode: str) -> dict[str, list[int]]:
        """What every request must give."""
        return self._streams[mode]

    def reference_logprobs(self, name: str) -> list[float]:
        """Raw log-probability of every token of a greedy stream."""
        return self._logprobs[name]

    def drafter(self, kind: str, mode: str, draft_len: int = DRAFT_LEN) -> Drafter:
        """Build a drafter of a kind; scripted ones know the reference streams of `mode`."""
        streams = [self._prompts[name] + tokens for name, tokens in self._streams[mode].items()]
        scripted = {
            "constant": lambda: ConstantDrafter(draft_len, 7),
            "random": lambda: RandomDrafter(draft_len, self.vocab_size),
            "no_token": lambda: NoTokenDrafter(draft_len),
            "oracle": lambda: OracleDrafter(draft_len, streams, self.vocab_size),
            "always_wrong": lambda: AlwaysWrongDrafter(draft_len, streams, self.vocab_size),
            "right_then_wrong": lambda: RightThenWrongDrafter(draft_len, streams, self.vocab_size, 1),
        }
        return scripted[kind]() if kind in scripted else self._real_drafter(kind, draft_len)

    def engine(
        self,
        kind: str,
        knobs: Knobs,
        *,
        mode: str = "greedy",
        draft_len: int = DRAFT_LEN,
        drafter: Drafter | None = None,
    ) -> TestEngine:
        """An engine with a drafter of a kind, or with a given drafter of that kind."""
        is_eagle = kind in ("eagle3", "steered")
        config, model = (self.eagle_config, self.tapped_model) if is_eagle else (self.config, self.model)
        return TestEngine(config, model, drafter or self.drafter(kind, mode, draft_len), knobs)

    def run(
        self,
        kind: str,
        mode: str,
        knobs: Knobs | None = None,
        *,
        draft_len: int = DRAFT_LEN,
        logprobs: int | None = None,
    ) -> dict[str, Outcome]:
        """Run the six requests to their end on a fresh engine."""
        drafter = self.recorder(kind, mode) if kind == "steered" else None
        engine = self.engine(kind, knobs or Knobs(), mode=mode, draft_len=draft_len, drafter=drafter)
        return engine.run(self.requests(mode, logprobs=logprobs))

    def record(
        self, kind: str, mode: str, knobs: Knobs, *, requests: list[Request] | None = None
    ) -> tuple[dict[str, list[int]], dict[tuple[int, int], list[int]]]:
        """Run on a fresh engine; return the tokens, and the proposals up to each request's last token."""
        recorded = self.recorder(kind, mode)
        engine = self.engine(kind, knobs, mode=mode, drafter=recorded)
        outcomes = engine.run(requests or self.requests(mode))
        return tokens_of(outcomes), self.useful(recorded)

    def recorder(self, kind: str, mode: str) -> RecordedDrafter | SteeredDrafter:
        """A recorded drafter; `steered` is EAGLE-3 whose ladders carry right and wrong drafts of known streams."""
        if kind != "steered":
            return RecordedDrafter(self.drafter(kind, mode))
        streams = [self._prompts[name] + tokens for name, tokens in self._streams[mode].items()]
        wrong_at = [position for position in range(200) if position % 7 in (0, 3)]
        return SteeredDrafter(
            self.drafter("eagle3", mode), OracleDrafter(self.draft_len, streams, self.vocab_size, wrong_at)
        )

    def useful(self, recorded: RecordedDrafter | SteeredDrafter) -> dict[tuple[int, int], list[int]]:
        """Leave out what was proposed past a request's end: with overlap the last step is one that nobody reads."""
        ends = {1000 + index: self.prompt_len(name) + MAX_NEW for index, name in enumerate(self._prompts)}
        return {key: drafts for key, drafts in recorded.proposals.items() if key[1] + self.draft_len < ends[key[0]]}

    def _real_drafter(self, kind: str, draft_len: int) -> Drafter:
        import msgspec

        section = (self.eagle_config if kind == "eagle3" else self.config).speculation
        section = msgspec.structs.replace(section, drafter=kind, draft_len=0 if kind == "none" else draft_len)
        return build_drafter(
            section,
            self.model,
            group=one_rank(),
            dtype=torch.float32,
            device=torch.device("cpu"),
            max_model_len=self.config.scheduler.max_model_len,
        )

    def _choose_prompts(self) -> dict[str, list[int]]:
        """Take, for every length, the first prompt all of whose draws are clear in both modes."""
        chosen: dict[str, list[int]] = {}
        for index, length in enumerate(PROMPT_LENGTHS):
            name = f"request-{index}"
            for attempt in range(200):
                prompt = random_prompts(self.vocab_size, [length], seed=1000 * index + attempt)[0]
                greedy = self._stream(prompt, make_request(name, prompt, MAX_NEW))
                coupled = self._stream(prompt, make_request(name, prompt, MAX_NEW, seed=1000 + index, **COUPLED))
                if greedy is not None and coupled is not None:
                    break
            else:
                raise AssertionError(f"no prompt of {length} tokens has clear draws: the random target is too flat")
            chosen[name] = prompt
            self._streams["greedy"][name], self._logprobs[name] = greedy
            self._streams["coupled"][name] = coupled[0]
        return chosen

    @torch.inference_mode()
    def _stream(self, prompt: list[int], request: Request) -> tuple[list[int], list[float]] | None:
        """Generate by whole contiguous forward passes, one per token; None when a draw is too close to call."""
        tokens, logprobs = list(prompt), []
        for _ in range(MAX_NEW):
            logits = contiguous_logits(self.config, self.model, tokens)[-1:]
            keys = self._draw_keys(logits, request, len(tokens))
            best = keys.topk(2).values[0]
            if (best[0] - best[1]).item() < MIN_MARGIN:
                return None
            tokens.append(int(keys.argmax()))
            logprobs.append(logits.log_softmax(-1)[0, tokens[-1]].item())
        return tokens[len(prompt) :], logprobs

    @staticmethod
    def _draw_keys(logits: torch.Tensor, request: Request, position: int) -> torch.Tensor:
        params = request.sampling
        if params.is_greedy:
            return logits
        one = SamplingInputs(
            temperature=torch.tensor([params.temperature]),
            top_k=torch.tensor([params.top_k], dtype=torch.int32),
            top_p=torch.tensor([params.top_p]),
            min_p=torch.tensor([params.min_p]),
            seed=torch.tensor([request.seed]),
        )
        noise = gumbel_noise(one.seed, torch.tensor([position]), logits.shape[1])
        return filter_rows(logits, one) / params.temperature + noise


def make_world(folder: Path, *, head: dict[str, object] | None = None, **geometry: object) -> World:
    """Build the world in an empty folder; `geometry` of the target, `head` of the EAGLE-3 head."""
    return World(folder, head=head, **geometry)


def contiguous_logits(config: EngineConfig, model: TargetModel, tokens: list[int]) -> torch.Tensor:
    """Logits of every position from one pass over fresh pages in order: [num_tokens, vocab_size]."""
    target, page_size, num_tokens = config.model.target, config.cache.page_size, len(tokens)
    num_pages = -(-num_tokens // page_size) + 1
    geometry = build_geometry(
        target=target, num_kv_heads=target.num_kv_heads, dtype="float32", page_size=page_size, num_pages=num_pages
    )
    pools = PagePools(geometry, torch.device("cpu"))
    positions = torch.arange(num_tokens)
    table = torch.arange(1, num_pages, dtype=torch.int32)[None]
    slots = positions + page_size
    attention = AttentionInputs(
        positions=positions,
        req_of_token=torch.zeros(num_tokens, dtype=torch.int64),
        page_table=table,
        slot_mapping=slots,
        index_page_table=table,
        index_slot_mapping=slots,
    )
    inputs = StepInputs(token_ids=torch.tensor(tokens), attention=attention)
    return model.compute_logits(model.forward(inputs, layer_caches(target, pools)).hidden)
