"""Warm-up on a GPU, captures included, leaves no trace: rows, tables, edits and pages keep every bit.

The state is filled with random values first, so that a write of what happened to be there is seen too.
"""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

from slipstream.config.hardware import probe_hardware
from slipstream.config.options import read_options
from slipstream.config.resolve import resolve
from slipstream.runner.build import build_runner

DEVICE = "cuda"


def built(drafter, **options):
    asked = {"device": DEVICE, "drafter": drafter, "max_num_seqs": 5, "kv_cache_bytes": 64 << 20, **options}
    return build_runner(resolve(read_options(asked), probe_hardware()), lambda progress: None)


def tensors_of(runner):
    """Everything that outlives a step, by name; the scratch row and the null page included."""
    parts = runner._parts
    found = {f"rows.{field.name}": getattr(parts.rows, field.name) for field in fields(parts.rows)}
    found |= {f"pools.{name}": arena for name, arena in parts.pools._arena.items()}
    found |= {f"tables.{group}": parts.tables.table(group) for group in parts.tables.groups}
    edits = parts.edits._state
    assert edits is not None
    return found | {f"edits.{field.name}": getattr(edits, field.name) for field in fields(edits)}


def fill(runner):
    """Give rows and pages random contents; the scratch row stays as it was made, because warm-up works on it."""
    parts, generator = runner._parts, torch.Generator(device=DEVICE).manual_seed(1)
    parts.edits.allocate()
    for arena in parts.pools._arena.values():
        arena.normal_(generator=generator)
    for name, values in tensors_of(runner).items():
        if name.startswith("rows.") and values.numel():
            real = values[:-1]
            draws = torch.rand(real.shape, generator=generator, device=DEVICE)
            real.copy_(
                draws * 100 if not values.is_floating_point() and values.dtype is not torch.bool else draws > 0.5
            )


def bits_of(runner):
    return {
        name: values.contiguous().flatten().view(torch.uint8).clone() for name, values in tensors_of(runner).items()
    }


def changed(before, after):
    return [name for name, bits in before.items() if not torch.equal(bits, after[name])]


@pytest.mark.parametrize("drafter", ["none", "ngram", "eagle3"])
def test_warm_up_changes_no_bit(drafter):
    runner = built(drafter).runner
    fill(runner)
    before = bits_of(runner)
    runner.warm_up()
    torch.cuda.synchronize()
    assert runner._graphs is not None
    assert runner._graphs.num_graphs > 0
    assert changed(before, bits_of(runner)) == []


def test_the_comparison_notices_a_single_value():
    runner = built("eagle3").runner
    fill(runner)
    before = bits_of(runner)
    runner._parts.pools._arena["draft_k"][0, 0, 0, 0, 0] += 1
    runner._parts.rows.history[-1, 3] = 1
    assert sorted(changed(before, bits_of(runner))) == ["pools.draft_k", "rows.history"]
