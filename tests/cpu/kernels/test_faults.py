from __future__ import annotations

import torch

from slipstream.base.errors import KernelError
from slipstream.kernels.faults import shape_fault


def test_faults_name_operand_shape_dtype_and_what_is_allowed():
    error = shape_fault("some_operation", "x", torch.zeros(2, 3, dtype=torch.bfloat16), "[4, 3]")
    assert str(error) == "some_operation: x is [2, 3] bfloat16, allowed is [4, 3]; fix the caller"
    assert isinstance(error, KernelError)
