"""Named ladders for rejection; every implementation must return the reference's tokens on all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.case import EXACT, Case
from slipstream.kernels.sampling.gumbel_noise.contract import gumbel_noise

NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionCase(Case):
    """Ladders of random logits.

    `drafts` says how proposals are made: `drawn` from a soft q of their own, `certain` (q is a point mass and no
    probabilities are given), `same` (q equals p), `missing` (NO_TOKEN at every second place), `zero` (q gives the
    proposal no mass at all), `heavy` (q is twice p, so that nothing is left to draw from), `broken` (the q of every
    second request holds NaN). `banned` excludes the first tokens from p. `fault` is what ladder row 1 of every second
    request holds.
    """

    drafts: str
    temperature: float = 1.0
    banned: int = 0
    fault: float = 0.0


def make_inputs(case: RejectionCase) -> dict[str, Tensor | None]:
    """Return the keyword arguments of the contract."""
    num_reqs, query_len, vocab_size = case.size("num_reqs"), case.size("query_len"), case.size("vocab_size")
    generator = case.generator()
    logits = torch.randn(num_reqs, query_len, vocab_size, generator=generator) * 2
    guesses = torch.randn(logits[:, :-1].shape, generator=generator) + 0.7 * logits[:, :-1]
    if case.drafts in ("same", "heavy"):
        guesses = logits[:, :-1]
    probs = torch.softmax(guesses.double() / case.temperature, -1)
    logits[..., : case.banned] = -torch.inf
    draft_len = query_len - 1
    drafts = torch.zeros(num_reqs, draft_len, dtype=torch.int64)
    if draft_len:
        flat = torch.multinomial(probs.flatten(0, 1), 1, generator=generator)
        drafts = flat.view(num_reqs, draft_len)
    if case.drafts == "missing":
        drafts[:, 1::2] = -1
    if case.drafts == "zero":
        probs = probs.scatter(-1, drafts[..., None], 0.0)
    if case.drafts == "heavy":
        probs = probs * 2
    if case.drafts == "broken":
        probs[::2, :, ::3] = torch.nan
    if case.fault:
        logits[::2, 1] = case.fault
    seed = torch.arange(num_reqs) * 977 - 3
    base = torch.arange(num_reqs) + 5
    positions = base[:, None] + torch.arange(1, query_len + 1)
    noise = gumbel_noise(seed.repeat_interleave(query_len), positions.reshape(-1), torch.arange(vocab_size))
    draws = (logits.flatten(0, 1) / case.temperature + noise).argmax(-1).view(num_reqs, query_len)
    return {
        "logits": logits,
        "temperature": torch.full((num_reqs,), case.temperature),
        "draws": draws,
        "draft_tokens": drafts,
        "draft_probs": None if case.drafts == "certain" else probs.float(),
        "seed": seed,
        "base_positions": base,
    }


def _case(
    name: str,
    guards: str,
    drafts: str,
    *,
    query_len: int = 4,
    vocab_size: int = 11,
    temperature: float = 1.0,
    banned: int = 0,
    fault: float = 0.0,
    num_reqs: int = 6,
) -> RejectionCase:
    return RejectionCase(
        name=name,
        guards=guards,
        seed=len(name),
        dtype=torch.float32,
        tolerance=EXACT,
        sizes={"num_reqs": num_reqs, "query_len": query_len, "vocab_size": vocab_size},
        drafts=drafts,
        temperature=temperature,
        banned=banned,
        fault=fault,
    )


CASES = (
    _case("no_drafts", "K = 0 is plain decoding: the row's own draw", "certain", query_len=1),
    _case("drawn", "every count of accepted drafts occurs", "drawn", num_reqs=12),
    _case("certain", "a point mass scored as one, the residual is p without the draft", "certain"),
    _case("same", "q equal to p: all stay, and a residual without mass is never reached", "same"),
    _case("missing", "no proposal: never accepted, and the token comes from p itself", "missing"),
    _case("zero", "a proposal that q says is impossible must not divide by zero", "zero"),
    _case("banned", "excluded tokens are never accepted and never drawn", "drawn", banned=5),
    _case("cold", "a small temperature", "drawn", temperature=0.05),
    _case("one_draft", "the smallest ladder that verifies", "drawn", query_len=2, vocab_size=5),
    _case("nothing_left", "a residual without mass is replaced by p", "heavy", query_len=3),
    _case("broken_q", "a q that is no number rejects, and is no mass to take away", "broken"),
    _case(
        "nan_row", "a row with NaN gives some valid token, and the rest of the batch what it would", "drawn", fault=NAN
    ),
    _case("excluded_row", "a row without any token has no maximum", "drawn", fault=-torch.inf),
    _case("hot", "every token is nearly as likely as any other", "drawn", temperature=1e6),
    _case("one_token", "nothing to choose between", "drawn", vocab_size=1),
    _case("wide", "more than one block, and not a multiple of one", "drawn", vocab_size=4133, num_reqs=4),
    _case("wide_certain", "the residual of a point mass in another block", "certain", vocab_size=4133, num_reqs=4),
)
