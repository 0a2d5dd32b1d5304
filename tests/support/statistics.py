"""Tests of goodness of fit for random draws."""

from __future__ import annotations

import torch
from torch import Tensor


def chi_square_p(counts: Tensor, expected_probs: Tensor) -> float:
    """Return the probability of counts at least this far from the expectation.

    Args:
        counts: [num_bins] draws per bin.
        expected_probs: [num_bins] probabilities; each expectation should be at least about 5.
    """
    observed = counts.double()
    expected = expected_probs.double() / expected_probs.double().sum() * observed.sum()
    statistic = ((observed - expected).square() / expected).sum()
    freedom = torch.tensor((observed.numel() - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))
