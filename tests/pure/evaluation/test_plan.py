"""The two sizes of a run."""

from __future__ import annotations

import msgspec

from slipstream.evaluation.plan import FULL, MEASURES, QUICK


def test_both_sizes_measure_everything_and_the_quick_one_less_of_it():
    assert FULL.measures == QUICK.measures == MEASURES
    smaller = [
        name
        for name, value in msgspec.structs.asdict(QUICK).items()
        if name.startswith("num_") and value < getattr(FULL, name)
    ]
    assert len(smaller) == sum(name.startswith("num_") for name in FULL.__struct_fields__)
    assert FULL.num_prompts >= 1000
