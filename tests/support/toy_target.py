"""A target without a network: logits are a fixed function of the last two tokens. And a loop that decodes with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from slipstream.batch.step_inputs import SamplingInputs
from slipstream.kernels.step.commit_rows.contract import commit_rows
from slipstream.kernels.step.store_drafts.contract import store_drafts
from slipstream.sampling.classes import SamplingClass, sampling_class_of
from slipstream.sampling.verify import Verdict, verify
from slipstream.speculation.interface import DraftCache, Drafter, ProposeInputs
from slipstream.speculation.none import NoDrafter
from slipstream.wire.ids import NO_TOKEN
from slipstream.wire.sampling_params import SamplingParams

NO_CACHE = DraftCache(k=None, v=None, page_size=4)


def sampling_inputs(params: Sequence[SamplingParams], seeds: Sequence[int]) -> SamplingInputs:
    """Return the device parameters of a batch."""
    return SamplingInputs(
        temperature=torch.tensor([one.temperature for one in params], dtype=torch.float32),
        top_k=torch.tensor([one.top_k for one in params], dtype=torch.int32),
        top_p=torch.tensor([one.top_p for one in params], dtype=torch.float32),
        min_p=torch.tensor([one.min_p for one in params], dtype=torch.float32),
        seed=torch.tensor(list(seeds), dtype=torch.int64),
    )


class ToyTarget:
    """Logits by table. `banned` tokens get -inf everywhere, as a mask would give them."""

    def __init__(self, vocab_size: int, seed: int = 0, spread: float = 2.0, banned: Sequence[int] = ()) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.vocab_size = vocab_size
        self.table = torch.randn(vocab_size, vocab_size, vocab_size, generator=generator) * spread
        self.table[..., list(banned)] = -torch.inf

    def logits(self, history: Tensor, positions: Tensor) -> Tensor:
        """Return [num_reqs, n, vocab_size]: what follows the token at each of [num_reqs, n] positions."""
        last = history.gather(1, positions)
        before = history.gather(1, (positions - 1).clamp(min=0))
        return self.table[before, last]


@dataclass
class Decoded:
    """Streams (prompt included), accepted drafts per verify step of each request, and the number of steps."""

    streams: list[list[int]]
    accepted: list[list[int]] = field(default_factory=list)
    num_steps: int = 0


def decode(
    target: ToyTarget,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    num_tokens: int,
    *,
    drafter: Drafter | None = None,
    seeds: Sequence[int] | None = None,
    verifier: Callable[..., Verdict] = verify,
) -> Decoded:
    """Decode `num_tokens` tokens of every prompt with the real commit and drafter, and the real verify unless told."""
    drafter = drafter or NoDrafter()
    draft_len = drafter.spec.draft_len
    num_reqs = len(prompts)
    # Every step emits 1 to K + 1 tokens, and the slowest row needs at most num_tokens steps.
    max_len = max(map(len, prompts)) + (num_tokens + 1) * (draft_len + 1)
    sampling = sampling_inputs(params, seeds if seeds is not None else range(num_reqs))
    chosen = sampling_class_of(params)
    rows = torch.arange(num_reqs)
    state = {
        "num_computed_tokens": torch.tensor([len(prompt) - 1 for prompt in prompts]),
        "last_token": torch.tensor([prompt[-1] for prompt in prompts]),
        "token_history": torch.randint(0, target.vocab_size, (num_reqs, max_len)),
    }
    for row, prompt in enumerate(prompts):
        state["token_history"][row, : len(prompt)] = torch.tensor(prompt)
    drafts = torch.full((num_reqs, draft_len), NO_TOKEN)
    result = Decoded([list(prompt) for prompt in prompts], [[] for _ in prompts])
    while min(len(s) - len(p) for s, p in zip(result.streams, prompts, strict=True)) < num_tokens:
        base = state["num_computed_tokens"].clone()
        ladder = torch.cat([state["last_token"][:, None], drafts.clamp(min=0)], 1)
        places = base[:, None] + torch.arange(draft_len + 1)
        seen = state["token_history"].scatter(1, places, ladder)
        verdict = verifier(target.logits(seen, places), drafts, base, sampling, chosen)
        assert verdict.is_finite.all()
        commit_rows(rows, base, verdict.num_accepted, verdict.emitted, **state)
        proposal = drafter.propose(
            ProposeInputs(
                emitted=verdict.emitted,
                num_accepted=verdict.num_accepted,
                base_positions=base,
                max_seq_lens=torch.full((num_reqs,), max_len),
                taps=torch.zeros(num_reqs, draft_len + 1, 0),
                page_table=torch.zeros(num_reqs, 1, dtype=torch.int32),
                sampling=sampling,
                history=state["token_history"],
                is_greedy=chosen is SamplingClass.GREEDY,
            ),
            NO_CACHE,
        )
        store_drafts(rows, proposal.draft_tokens, drafts)
        result.num_steps += 1
        for row in range(num_reqs):
            count = int(verdict.num_accepted[row])
            result.accepted[row].append(count)
            result.streams[row] += verdict.emitted[row, : count + 1].tolist()
    result.streams = [s[: len(p) + num_tokens] for s, p in zip(result.streams, prompts, strict=True)]
    return result
