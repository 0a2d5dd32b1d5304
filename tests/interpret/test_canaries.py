"""No Triton kernel writes beside its tensors, on any named case; interpreted. `tests/gpu` has the same on a GPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import triton
import triton.language as tl

from support.canaries import Canaries, Trampled, check_guarded
from support.triton_cases import PAIRS, arguments_of, run_triton


@pytest.mark.parametrize(("operation", "case_name"), PAIRS)
def test_nothing_beside_a_tensor_is_written(operation, case_name):
    expected = run_triton(operation, arguments_of(operation, case_name, "cpu"))
    canaries = check_guarded(partial(run_triton, operation), arguments_of(operation, case_name, "cpu"), expected)
    assert canaries.guarded


@triton.jit
def double_kernel(x_ptr, out_ptr, first, last, block: tl.constexpr):
    place = first + tl.arange(0, block)
    mask = place < last
    tl.store(out_ptr + place, 2 * tl.load(x_ptr + place, mask=mask & (place >= 0), other=0.0), mask=mask)


def double(first, past, arguments):
    """Double a vector, but begin at `first` and end `past` the end."""
    x = arguments["x"]
    out = torch.empty_like(x)
    double_kernel[(1,)](x, out, first, len(x) + past, block=64)
    return (out,)


X = torch.arange(1, 38).float()


def test_a_sound_kernel_passes_and_its_buffers_are_guarded():
    canaries = check_guarded(partial(double, 0, 0), {"x": X}, (2 * X,))
    assert [entry[0] for entry in canaries.guarded] == ["x", "allocation 1 (empty_like, [37])"]


@pytest.mark.parametrize(
    ("first", "past", "side"), [(0, 1, "behind"), (-1, 0, "before"), (0, 20, "behind")], ids=["next", "last", "block"]
)
def test_a_kernel_that_runs_over_is_noticed(first, past, side):
    with pytest.raises(Trampled, match=rf"bytes {side} allocation 1"):
        check_guarded(partial(double, first, past), {"x": X}, (2 * X,))


def test_a_write_beside_an_argument_is_noticed():
    def run(arguments):
        double_kernel[(1,)](arguments["x"], arguments["state"], 0, len(X) + 1, block=64)
        return (arguments["state"],)

    with pytest.raises(Trampled, match="bytes behind state were written"):
        check_guarded(run, {"x": X, "state": torch.zeros_like(X)}, (2 * X,))


@pytest.mark.parametrize(("first", "past"), [(1, 0), (0, -1)], ids=["first", "last"])
def test_an_element_that_nobody_wrote_is_noticed(first, past):
    with pytest.raises(AssertionError, match="was in its memory"):
        check_guarded(partial(double, first, past), {"x": X}, (2 * X,))


def test_a_value_read_beside_an_argument_is_noticed():
    def run(arguments):
        out = torch.zeros_like(arguments["x"])
        double_kernel[(1,)](arguments["x"].view(-1)[1:], out, 0, len(X), block=64)
        return (out,)

    with pytest.raises(AssertionError, match="lies beside"):
        check_guarded(run, {"x": X}, (torch.cat([2 * X[1:], torch.zeros(1)]),))


def test_placed_tensors_keep_values_strides_and_alignment():
    canaries = Canaries()
    wide = torch.arange(24).view(4, 6)
    for tensor in (wide, wide[:, ::2], wide.t(), wide[:1].expand(3, 6), wide[:0], torch.ones(3, dtype=torch.bool)):
        placed = canaries.place("x", tensor)
        assert torch.equal(placed, tensor)
        assert placed.stride() == tensor.stride()
        assert placed.data_ptr() % 16 == 0 or not placed.numel()
    canaries.check()
