"""A small random target whose vocabulary is that of a trained tokenizer, constrained requests, and what they must give:
step by step, one whole forward pass, one fresh mask and one token at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch

from slipstream.sampling.filters import filter_rows
from slipstream.sampling.noise import gumbel_noise
from slipstream.speculation.interface import Drafter, ProposeInputs
from slipstream.text.grammar.bitmask import num_words, unpack_mask
from slipstream.text.grammar.boundary import ReasoningEnd
from slipstream.text.grammar.compiler import GrammarCompiler
from slipstream.text.grammar.lazy_compiler import CompilerParts, LazyCompiler
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.request import Request
from support.drafters import OracleDrafter
from support.edit_oracle import edited
from support.engine_world import MIN_MARGIN
from support.engines import Knobs, TestEngine, make_request, random_prompts
from support.feature_world import Expected, FeatureWorld
from support.grammar_schemas import is_valid
from support.grammar_world import end_id, grammar_tokenizer, model_vocab_size, text_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "deep"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SPECS = {
    "schema": GrammarSpec.json_schema(SCHEMA),
    "flag": GrammarSpec.json_schema({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}),
    "regex": GrammarSpec.regex("(ab|cd){2,5}-[0-9]{1,4}"),
    "choice": GrammarSpec.choice(["so the answer is clear", "so it goes on", "let us think about it"]),
    "lark": GrammarSpec.grammar('start: "f" args\nargs: "(" [NAME ("," NAME)*] ")"\nNAME: /[a-c]{1,3}/'),
}
WARM = {"temperature": 1.2, "top_k": 300, "top_p": 0.99, "min_p": 0.0001}


def open_compiler() -> LazyCompiler:
    """Return a compiler for the trained tokenizer."""

    def build() -> CompilerParts:
        compiler = GrammarCompiler(grammar_tokenizer(), vocab_size=model_vocab_size())
        return CompilerParts(compiler, ReasoningEnd(grammar_tokenizer(), model_vocab_size()))

    return LazyCompiler(build)


def spaces() -> dict[int, float]:
    """Return a bias that keeps a random model from filling its budget with white space."""
    tokenizer = grammar_tokenizer()
    texts = {token: tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)}
    return {token: -100.0 for token, text in texts.items() if any(byte in b" \n\r\t" for byte in text)}


class ConstrainedWorld(FeatureWorld):
    """The target and its EAGLE-3 head; engines that compile constraints."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, vocab_size=model_vocab_size())
        self.compiler = open_compiler()

    def close(self) -> None:
        """End the compiler's process."""
        self.compiler.close()

    def constrained_engine(
        self, kind: str, knobs: Knobs, *, streams: Sequence[Sequence[int]] = (), drafter: Drafter | None = None
    ) -> TestEngine:
        """An engine with a drafter of a kind or a given one, and a compiler of its own that shares what is compiled."""
        config, model = (self.eagle_config, self.tapped_model) if kind == "eagle3" else (self.config, self.model)
        return TestEngine(
            config, model, drafter or self.drafter(kind, streams), knobs, compiler=SharedCompiler(self.compiler)
        )

    def expect(
        self, request: Request, is_hopeless: Callable[[list[int]], bool] = lambda tokens: False
    ) -> Expected | None:
        """Generate step by step under fresh masks; None when a draw is too close to call, or the text hopeless."""
        assert request.sampling.grammar is not None
        matcher = self.compiler.match(self.compiler.compile(request.sampling.grammar), request.grammar_starts)
        expected, tokens = Expected(), list(request.prompt_token_ids)
        mask = np.empty((1, num_words(self.vocab_size)), dtype=np.int32)
        while len(tokens) < request.max_seq_len:
            matcher.fill_masks((), mask)
            allowed = torch.from_numpy(unpack_mask(mask[0], self.vocab_size))
            keys = self._masked_keys(request, self.raw_logits(tokens)[-1], tokens, allowed)
            best = keys.topk(2).values
            if (best[0] - best[1]).item() < MIN_MARGIN:
                return None
            tokens.append(int(keys.argmax()))
            expected.token_ids.append(tokens[-1])
            matcher.accept(tokens[-1:])
            if is_hopeless(expected.token_ids):
                return None
            if tokens[-1] in request.stop_token_ids:
                expected.finish_reason = "stop"
                break
        return expected

    def _masked_keys(
        self, request: Request, raw: torch.Tensor, tokens: list[int], allowed: torch.Tensor
    ) -> torch.Tensor:
        params, num_prompt = request.sampling, len(request.prompt_token_ids)
        values = edited(
            raw.tolist(),
            tokens[:num_prompt],
            tokens[num_prompt:],
            logit_bias=dict(params.logit_bias),
            presence_penalty=params.presence_penalty,
            min_tokens=params.min_tokens,
            end_tokens=request.stop_token_ids,
        )
        logits = torch.tensor(values).masked_fill(~allowed, -torch.inf)
        if params.is_greedy:
            return logits
        scores = (filter_rows(logits[None], self._sampling(request)) / params.temperature)[0]
        return scores + gumbel_noise(torch.tensor([request.seed]), torch.tensor([len(tokens)]), self.vocab_size)[0]

    def find(
        self,
        name: str,
        mode: str,
        *,
        length: int,
        max_new: int = 60,
        is_wanted: Callable[[Expected], bool] = lambda expected: True,
        is_hopeless: Callable[[list[int]], bool] = lambda tokens: False,
        starts: str = "answer",
        spec: GrammarSpec | None = None,
        first_seed: int = 0,
        **sampling: object,
    ) -> tuple[Request, Expected]:
        """Return the first random request with clear draws whose answer is wanted."""
        warm = WARM if mode == "coupled" else {}
        for attempt in range(first_seed, first_seed + 400):
            prompt = random_prompts(self.vocab_size - 60, [length], seed=attempt)[0]
            wishes = {"logit_bias": spaces(), **warm, **sampling, "grammar": spec or SPECS[name]}
            request = make_request(name, prompt, max_new, seed=attempt, **wishes)
            request = msgspec.structs.replace(
                request, stop_token_ids=(end_id(),), eos_token_ids=(end_id(),), grammar_starts=starts
            )
            expected = self.expect(request, is_hopeless)
            if expected is not None and is_wanted(expected):
                return request, expected
        raise AssertionError(f"no prompt has clear draws for {name}")


class ConstrainedSet:
    """One request per kind of constraint and two free ones, all with clear draws, and what they must give."""

    def __init__(self, world: ConstrainedWorld, mode: str) -> None:
        self.requests: dict[str, Request] = {}
        self.expected: dict[str, Expected] = {}
        for index, name in enumerate(SPECS):
            request, expected = world.find(
                name,
                mode,
                length=4 + 5 * index,
                is_wanted=lambda expected: expected.finish_reason == "stop" and len(expected.token_ids) > 3,
            )
            self.requests[name], self.expected[name] = request, expected
        self.free: dict[str, Request] = {}
        warm = WARM if mode == "coupled" else {}
        for index in range(2):
            name = f"free-{index}"
            for attempt in range(100):
                prompt = random_prompts(world.vocab_size, [9 + index], seed=7000 + 100 * index + attempt)[0]
                request = make_request(name, prompt, 30, seed=attempt, **warm)
                expected = FeatureWorld.expect(world, request)
                if expected is not None:
                    break
            else:
                raise AssertionError("no prompt has clear draws")
            self.free[name], self.expected[name] = request, expected

    @property
    def tokens(self) -> dict[str, list[int]]:
        """What every request must return."""
        return {name: expected.token_ids for name, expected in self.expected.items()}

    @property
    def streams(self) -> list[list[int]]:
        """Prompt and answer of every request."""
        both = self.requests | self.free
        return [[*request.prompt_token_ids, *self.expected[name].token_ids] for name, request in both.items()]

    def all(self) -> list[Request]:
        """The requests, constrained and free ones in turn."""
        constrained, free = list(self.requests.values()), list(self.free.values())
        return [constrained[0], free[0], *constrained[1:3], free[1], *constrained[3:]]


def is_right(name: str, tokens: Sequence[int]) -> bool:
    """Return whether a finished answer is what its constraint asks for, judged without the library."""
    text = text_of(list(tokens))
    if name == "schema":
        return is_valid(json.loads(text), SCHEMA)
    if name == "flag":
        value = json.loads(text)
        return isinstance(value, dict) and isinstance(value["ok"], bool)
    if name == "choice":
        return text in json.loads(SPECS["choice"].text)
    pattern = {"regex": "(ab|cd){2,5}-[0-9]{1,4}", "lark": r"f\(([a-c]{1,3}(,[a-c]{1,3})*)?\)"}[name]
    return re.fullmatch(pattern, text) is not None


class SharedCompiler:
    """Passes everything on but the end, which is not its to decide."""

    def __init__(self, compiler: LazyCompiler) -> None:
        self._compiler = compiler

    def __getattr__(self, name: str) -> object:
        return getattr(self._compiler, name)

    def close(self) -> None:
        """Leave the compiler to the others."""


class InsertDrafter(OracleDrafter):
    """The right continuation, but for one place of every ladder, which always holds the same token.

    Args:
        draft_len: K.
        streams: see OracleDrafter.
        vocab_size: of the target.
        place: 0 .. K - 1.
        token: what stands there.
    """

    def __init__(
        self, draft_len: int, streams: Sequence[Sequence[int]], vocab_size: int, place: int, token: int
    ) -> None:
        super().__init__(draft_len, streams, vocab_size)
        self._place, self._token = place, token

    def drafts_at(self, inputs: ProposeInputs, positions: torch.Tensor) -> torch.Tensor:
        drafts = super().drafts_at(inputs, positions)
        drafts[:, self._place] = self._token
        return drafts
