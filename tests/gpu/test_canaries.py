"""No Triton kernel writes beside its tensors, on any named case, on a GPU; `tests/interpret` tries the guards too."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from support.canaries import GUARD_BYTES, Trampled, check_guarded
from support.triton_cases import PAIRS, arguments_of, run_triton


@pytest.mark.parametrize(("operation", "case_name"), PAIRS)
def test_nothing_beside_a_tensor_is_written(operation, case_name):
    expected = run_triton(operation, arguments_of(operation, case_name, "cuda"))
    canaries = check_guarded(partial(run_triton, operation), arguments_of(operation, case_name, "cuda"), expected)
    assert canaries.guarded


@pytest.mark.parametrize(("victim", "name"), [("out", "allocation 1"), ("x", "x")])
def test_one_float_beside_a_tensor_is_noticed_on_the_device(victim, name):
    x = torch.arange(64, device="cuda").float()

    def run(arguments):
        out = torch.empty_like(arguments["x"]).copy_(arguments["x"])
        beside = {"out": out, "x": arguments["x"]}[victim]
        beside.as_strided((1,), (1,), GUARD_BYTES // 4 + len(x)).fill_(0.0)
        return (out,)

    with pytest.raises(Trampled, match=f"4 bytes behind {name}"):
        check_guarded(run, {"x": x}, (x,))
