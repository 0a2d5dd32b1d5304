"""The host's choice of the sampling class."""

from __future__ import annotations

import pytest

from slipstream.sampling.classes import SamplingClass, sampling_class_of
from slipstream.wire.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0.0, top_k=3, top_p=0.5)
PLAIN = SamplingParams(temperature=0.7)


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ((), SamplingClass.GREEDY),
        ((GREEDY, GREEDY), SamplingClass.GREEDY),
        ((GREEDY, PLAIN), SamplingClass.PLAIN),
        ((PLAIN, GREEDY), SamplingClass.PLAIN),
        ((GREEDY, SamplingParams(top_k=1)), SamplingClass.FULL),
        ((SamplingParams(top_p=0.9), PLAIN), SamplingClass.FULL),
        ((PLAIN, SamplingParams(min_p=0.1)), SamplingClass.FULL),
    ],
)
def test_the_smallest_class_that_serves_all(params, wanted):
    assert sampling_class_of(params) is wanted
    assert sampling_class_of(iter(params)) is wanted
