"""Wrong versions of rejection: the sound one on inputs, or with results, that the fault would make of them."""

from __future__ import annotations

import torch

# Fault -> the cases that exist for it.
FAULTS = {
    "own_draw_lost": ("no_drafts",),
    "next_position": ("drawn", "one_draft", "banned"),
    "q_is_flat": ("certain", "wide_certain"),
    "q_is_too_large": ("same", "drawn"),
    "missing_is_token_0": ("missing",),
    "zero_rejects": ("zero",),
    "excluded_are_drawn": ("banned",),
    "no_temperature": ("cold", "hot"),
    "nothing_left_is_token_0": ("nothing_left",),
    "nan_is_accepted": ("broken_q",),
    "unsound_row_rejects": ("nan_row", "excluded_row"),
    "never_accepts": ("one_token",),
    "second_block_lost": ("wide",),
}


def verify_mutant(verify, given, fault):
    """Return the results of `verify` under a fault; `given` are the arguments of a case."""
    given = dict(given)
    logits, probs = given["logits"], given["draft_probs"]
    if fault == "next_position":
        given["base_positions"] = given["base_positions"] + 1
    elif fault == "q_is_flat":
        given["draft_probs"] = torch.full_like(logits[:, :-1], 1 / logits.shape[2])
    elif fault == "q_is_too_large":
        given["draft_probs"] = probs * 1.5
    elif fault == "missing_is_token_0":
        given["draft_tokens"] = given["draft_tokens"].clamp(min=0)
    elif fault == "zero_rejects":
        given["draft_probs"] = torch.where(probs == 0, torch.nan, probs)
    elif fault == "excluded_are_drawn":
        given["logits"] = logits.nan_to_num(neginf=0.0)
    elif fault == "no_temperature":
        given["temperature"] = torch.ones_like(given["temperature"])
    elif fault == "nan_is_accepted":
        given["draft_probs"] = probs.nan_to_num(0.0)
    elif fault == "second_block_lost":
        given["logits"] = torch.cat([logits[..., :2048], torch.full_like(logits[..., 2048:], -torch.inf)], -1)
    accepted, emitted = verify(**given)
    place = accepted[:, None]
    if fault == "own_draw_lost":
        emitted = torch.zeros_like(emitted)
    elif fault == "nothing_left_is_token_0":
        emitted = torch.where(place < given["draft_tokens"].shape[1], emitted.scatter(1, place, 0), emitted)
    elif fault == "unsound_row_rejects":
        accepted = torch.where(torch.isfinite(logits[:, 1].amax(-1)), accepted, accepted.clamp(max=1))
    elif fault == "never_accepts":
        accepted = torch.zeros_like(accepted)
    return accepted, emitted
