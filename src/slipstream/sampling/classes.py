"""The three classes of a batch's sampling work. The host chooses; the tokens never depend on the choice."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from slipstream.wire.sampling_params import SamplingParams


class SamplingClass(IntEnum):
    """How much work a batch needs; a larger class can do everything that a smaller one can."""

    GREEDY = 0
    """Every row is greedy: no noise."""
    PLAIN = 1
    """Temperature only."""
    FULL = 2
    """Some row has top-k, top-p or min-p."""


def sampling_class_of(params: Iterable[SamplingParams]) -> SamplingClass:
    """Return the smallest class that serves every one of a batch's requests; GREEDY for an empty batch.

    Args:
        params: sampling parameters of the requests of the batch, on the host.
    """
    result = SamplingClass.GREEDY
    for one in params:
        if one.has_filters:
            return SamplingClass.FULL
        if not one.is_greedy:
            result = SamplingClass.PLAIN
    return result
