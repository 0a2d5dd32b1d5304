"""A small random target, requests that each ask for one thing, and what they must give: step by step, one token and
one whole forward pass at a time, by an oracle that shares no code with the features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.models.interface import TargetModel
from slipstream.models.m3.model import build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import one_rank
from slipstream.sampling.filters import filter_rows
from slipstream.sampling.noise import gumbel_noise
from slipstream.speculation.interface import Drafter
from slipstream.speculation.registry import build_drafter
from slipstream.wire.request import Request
from support.drafters import ListDrafter, NoTokenDrafter, OracleDrafter, RightThenWrongDrafter
from support.edit_oracle import edited
from support.engine_world import MIN_MARGIN, contiguous_logits
from support.engines import Knobs, TestEngine, make_request, random_prompts
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3

MACHINE = Hardware(num_cpus=1, total_memory_bytes=8 << 30, available_memory_bytes=8 << 30, cuda_devices=())
DRAFT_LEN = 3
MAX_NEW = 14
WARM = {"temperature": 1.2, "top_k": 60, "top_p": 0.98, "min_p": 0.001}
NUM_TOP = 5


@dataclass
class Expected:
    """What a request must give."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[list[tuple[int, float]]] = field(default_factory=list)
    finish_reason: str = "length"


class FeatureWorld:
    """The target, its EAGLE-3 head, and the requests of each mode (`greedy`, `coupled`)."""

    def __init__(self, folder: Path, **geometry: object) -> None:
        make_tiny_checkpoint(folder, dtype="float32", **geometry)
        self.config = resolve(Options(model=str(folder), drafter="none"), MACHINE)
        target = self.config.model.target
        reduced = max(target.vocab_size * 3 // 4, 2)
        head = make_tiny_eagle3(folder / "eagle3", target, dtype="float32", draft_vocab_size=reduced)
        self.eagle_config = resolve(Options(model=str(folder), drafter=str(head), draft_len=DRAFT_LEN), MACHINE)
        assert self.eagle_config.speculation.eagle3 is not None
        self.model = self._load(folder, ())
        self.tapped_model = self._load(folder, self.eagle_config.speculation.eagle3.aux_layer_ids)
        self.vocab_size = target.vocab_size
        self.page_size = self.config.cache.page_size

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

    @torch.inference_mode()
    def raw_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits of every position of a text: [num_tokens, vocab_size]."""
        return contiguous_logits(self.config, self.model, list(tokens))

    def engine(
        self, kind: str, knobs: Knobs, *, streams: Sequence[Sequence[int]] = (), drafter: Drafter | None = None
    ) -> TestEngine:
        """An engine with a drafter of a kind, or a given one; scripted ones know the texts in `streams`."""
        config, model = (self.eagle_config, self.tapped_model) if kind == "eagle3" else (self.config, self.model)
        return TestEngine(config, model, drafter or self.drafter(kind, streams), knobs)

    def drafter(self, kind: str, streams: Sequence[Sequence[int]] = ()) -> Drafter:
        """A drafter of a kind."""
        scripted = {
            "no_token": lambda: NoTokenDrafter(DRAFT_LEN),
            "oracle": lambda: OracleDrafter(DRAFT_LEN, streams, self.vocab_size),
            "right_then_wrong": lambda: RightThenWrongDrafter(DRAFT_LEN, streams, self.vocab_size, 1),
            "forbidden": lambda: ListDrafter(DRAFT_LEN, (11, 12, 13)),
        }
        if kind in scripted:
            return scripted[kind]()
        section = (self.eagle_config if kind == "eagle3" else self.config).speculation
        section = msgspec.structs.replace(section, drafter=kind, draft_len=0 if kind == "none" else DRAFT_LEN)
        return build_drafter(
            section,
            self.model,
            group=one_rank(),
            dtype=torch.float32,
            device=torch.device("cpu"),
            max_model_len=self.config.scheduler.max_model_len,
        )

    def expect(self, request: Request) -> Expected | None:
        """Generate step by step; None when a draw is too close to call."""
        expected, tokens = Expected(), list(request.prompt_token_ids)
        while len(tokens) < request.max_seq_len:
            raw = self.raw_logits(tokens)[-1]
            keys = self._keys(request, raw, tokens)
            best = keys.topk(2).values
            if (best[0] - best[1]).item() < MIN_MARGIN:
                return None
            tokens.append(int(keys.argmax()))
            logprobs = raw.log_softmax(-1)
            expected.token_ids.append(tokens[-1])
            expected.logprobs.append(float(logprobs[tokens[-1]]))
            values, ids = logprobs.topk(NUM_TOP)
            expected.top.append(list(zip(ids.tolist(), values.tolist(), strict=True)))
            if tokens[-1] in request.stop_token_ids:
                expected.finish_reason = "stop"
                break
        return expected

    @staticmethod
    def scores(request: Request, raw: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        """Return what a draw adds its noise to: [vocab_size], edited, filtered and divided by the temperature."""
        params, num_prompt = request.sampling, len(request.prompt_token_ids)
        values = edited(
            raw.tolist(),
            tokens[:num_prompt],
            tokens[num_prompt:],
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            logit_bias=dict(params.logit_bias),
            allowed_token_ids=params.allowed_token_ids,
            sequences=request.bad_token_ids,
            min_tokens=params.min_tokens,
            end_tokens=request.stop_token_ids,
        )
        logits = torch.tensor(values)[None]
        if params.is_greedy:
            return logits[0]
        return (filter_rows(logits, FeatureWorld._sampling(request)) / params.temperature)[0]

    @staticmethod
    def _sampling(request: Request) -> SamplingInputs:
        params = request.sampling
        return SamplingInputs(
            temperature=torch.tensor([params.temperature]),
            top_k=torch.tensor([params.top_k], dtype=torch.int32),
            top_p=torch.tensor([params.top_p]),
            min_p=torch.tensor([params.min_p]),
            seed=torch.tensor([request.seed]),
        )

    def _keys(self, request: Request, raw: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        scores = self.scores(request, raw, tokens)
        if request.sampling.is_greedy:
            return scores
        return scores + gumbel_noise(torch.tensor([request.seed]), torch.tensor([len(tokens)]), self.vocab_size)[0]


def features(plain: list[int], vocab_size: int) -> dict[str, tuple[dict[str, object], dict[str, object]]]:
    """Return (sampling, request fields) by name, each of which changes the plain text.

    Args:
        plain: what the request would return without the feature.
        vocab_size: of the target.
    """
    first, second, third = plain[0], plain[1], plain[2]
    return {
        "repetition": ({"repetition_penalty": 1.8}, {}),
        "presence": ({"presence_penalty": 2.0, "frequency_penalty": 0.5}, {}),
        "attraction": ({"presence_penalty": -2.0, "frequency_penalty": -1.0}, {}),
        "bias": ({"logit_bias": {first: -100, second: -3.0, 12: 4.0}}, {}),
        "allowed": ({"allowed_token_ids": range_of(4, vocab_size, 3, {first})}, {}),
        "bad_tokens": ({"bad_words": ["x"]}, {"bad_token_ids": ((first,), (third,), (11,))}),
        "bad_sequences": ({"bad_words": ["x"]}, {"bad_token_ids": ((first, second), (second, third), (11, 12))}),
        "min_tokens": ({"min_tokens": 6, "logit_bias": {first: 5.0}}, {"stop_token_ids": (first, second, third)}),
        "everything": (
            {
                "repetition_penalty": 1.2,
                "presence_penalty": 0.5,
                "frequency_penalty": 0.3,
                "logit_bias": {12: 2.0},
                "allowed_token_ids": range_of(5, vocab_size, 2, {first}),
                "bad_words": ["x"],
                "min_tokens": 5,
            },
            {"bad_token_ids": ((second,), (third, third)), "stop_token_ids": (third, 12)},
        ),
    }


def range_of(start: int, stop: int, step: int, without: set[int]) -> list[int]:
    """Return every step-th token but some."""
    return [token for token in range(start, stop, step) if token not in without]


class FeatureSet:
    """One request per feature and one without any, all with clear draws, and what they must give.

    Args:
        world: the target.
        mode: `greedy` or `coupled`.
        first_place: of the plain answer's tokens that the features are about.
    """

    def __init__(self, world: FeatureWorld, mode: str, first_place: int = 0) -> None:
        self.requests: dict[str, Request] = {}
        self.expected: dict[str, Expected] = {}
        self.plain: dict[str, list[int]] = {}
        warm = WARM if mode == "coupled" else {}
        names = ["plain", *features([0, 1, 2], world.vocab_size)]
        for index, name in enumerate(names):
            for attempt in range(100):
                prompt = random_prompts(world.vocab_size, [5 + 3 * index], seed=500 * index + attempt)[0]
                plain_request = make_request(name, prompt, MAX_NEW, seed=70 + index, logprobs=NUM_TOP, **warm)
                plain = world.expect(plain_request)
                if plain is None:
                    continue
                about = plain.token_ids[first_place:]
                sampling, fields = ({}, {}) if name == "plain" else features(about, world.vocab_size)[name]
                params = msgspec.structs.replace(plain_request.sampling, **sampling)
                request = msgspec.structs.replace(plain_request, sampling=params, **fields)
                expected = world.expect(request)
                is_telling = name == "plain" or (expected is not None and expected.token_ids != plain.token_ids)
                if name == "min_tokens":
                    is_telling = expected is not None and expected.finish_reason == "stop"
                if expected is not None and is_telling:
                    break
            else:
                raise AssertionError(f"no prompt has clear draws for {name}")
            self.requests[name], self.expected[name] = request, expected
            self.plain[name] = plain.token_ids

    @property
    def tokens(self) -> dict[str, list[int]]:
        """What every request must return."""
        return {name: expected.token_ids for name, expected in self.expected.items()}

    @property
    def texts(self) -> list[list[int]]:
        """Prompt and answer of every request, and the answers that they would have had without their features."""
        pairs = [(request, self.expected[name].token_ids) for name, request in self.requests.items()]
        pairs += [(request, self.plain[name]) for name, request in self.requests.items()]
        return [[*request.prompt_token_ids, *tokens] for request, tokens in pairs]

    def all(self) -> list[Request]:
        """The requests, in one order."""
        return list(self.requests.values())
