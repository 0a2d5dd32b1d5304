"""The filters written down a second time, row by row, with named faults that the named cases must reject."""

from __future__ import annotations

import math

import torch

BLOCK = 4096
# Fault -> the cases that exist for it.
FAULTS = {
    "scaled_logits": ("off",),
    "keeps_all_ties": ("top_k_one", "top_k_ties"),
    "higher_id_wins": ("top_k_one", "top_k_ties", "top_p_ties"),
    "k_wraps": ("top_k_wide",),
    "crossing_token_lost": ("top_p_tiny", "top_p_near_one", "one_token"),
    "min_p_strict": ("min_p_one",),
    "min_p_of_the_sum": ("min_p_half",),
    "top_p_before_top_k": ("all_three",),
    "no_temperature": ("cold", "hot", "min_p_half"),
    "greedy_is_filtered": ("greedy",),
    "bad_row_is_cleared": ("nan_row", "inf_row"),
    "excluded_row_is_nan": ("excluded_row",),
    "k_brings_back": ("k_beyond_min_p",),
    "k_of_vocab_is_less": ("k_is_vocab",),
    "last_cannot_be_cut": ("k_before_last",),
    "mass_of_all_ties": ("cut_ties_shared",),
    "small_scores_are_zero": ("hot_beyond",),
    "overflow_is_excluded": ("cold_beyond",),
    "second_block_lost": ("wide_off", "wide_nucleus", "wide_all"),
    "ranks_restart_in_a_block": ("wide_ties",),
}


def filter_faulty(logits, temperature, top_k, top_p, min_p, fault=None):
    """Return the filtered logits; all rows have the same parameters, as in the cases."""
    parameters = [values[0].item() for values in (temperature, top_k, top_p, min_p)]
    return torch.stack([filter_row(row, *parameters, fault) for row in logits])


def filter_row(row, temperature, top_k, top_p, min_p, fault):
    size, top = len(row), row.max()
    if not torch.isfinite(top):
        if fault == "excluded_row_is_nan":
            return row - top
        return torch.full_like(row, -math.inf) if fault == "bad_row_is_cleared" else row
    if temperature == 0:
        if fault != "greedy_is_filtered":
            return row
        temperature = 1.0
    scores = (row - top) / (1.0 if fault == "no_temperature" else torch.tensor(temperature))
    if fault == "small_scores_are_zero":
        scores = torch.where(scores.abs() < 2.0**-126, 0.0, scores)
    weights = scores.double().exp()
    share = weights / weights.sum() if fault == "min_p_of_the_sum" else weights
    is_alive = share > min_p if fault == "min_p_strict" else share >= min_p
    if fault == "overflow_is_excluded":
        is_alive &= scores > -math.inf
    weights = weights * is_alive
    ids = torch.arange(size)
    if fault == "higher_id_wins":
        ids = ids.flip(0)
    visible = scores if fault == "k_brings_back" else scores.masked_fill(~is_alive, -math.inf)
    order = ids[visible[ids].sort(stable=True, descending=True).indices]
    limit = limit_of(top_k, size, fault)
    chosen = order[:limit]
    if fault == "ranks_restart_in_a_block":
        tied = (visible == visible[chosen[-1]]).nonzero()[:, 0]
        missing = int((visible[chosen] == visible[chosen[-1]]).sum())
        better = chosen[visible[chosen] > visible[chosen[-1]]]
        chosen = torch.cat([better, *[tied[tied // BLOCK == block][:missing] for block in range(-(-size // BLOCK))]])
    if fault == "keeps_all_ties" and limit < size:
        chosen = order[visible[order] >= visible[chosen[-1]]]
    if top_p < 1:
        counted = order if fault == "top_p_before_top_k" else chosen
        if fault == "mass_of_all_ties":
            counted = order[visible[order] >= visible[chosen[-1]]]
        allowance = top_p * weights[counted].sum()
        mass = weights[chosen].cumsum(0)
        before = mass if fault == "crossing_token_lost" else mass - weights[chosen]
        is_kept = before < allowance
        is_kept[0] |= fault != "crossing_token_lost"
        chosen = chosen[is_kept]
    keeps = torch.zeros(size, dtype=torch.bool)
    keeps[chosen] = True
    if fault == "second_block_lost":
        keeps[BLOCK:] = False
    keeps &= torch.ones_like(is_alive) if fault == "k_brings_back" else is_alive
    return torch.where(keeps, scores if fault == "scaled_logits" else row, -math.inf)


def limit_of(top_k, size, fault):
    if top_k <= 0:
        return size
    if fault == "k_wraps":
        return top_k % size or size
    if fault == "k_of_vocab_is_less":
        return min(top_k, size - 1)
    if fault == "last_cannot_be_cut" and top_k == size - 1:
        return size
    return min(top_k, size)
