"""Run a Triton implementation on its operation's named cases, wherever Triton runs: interpreted or on a GPU."""

from __future__ import annotations

import inspect

import torch

import slipstream.kernels.registry as registry
from support.kernel_cases import (
    FAMILIES,
    accepts,
    as_tuple,
    cases_of,
    contract_of,
    expected_of,
    inputs_of,
    module_of,
    reference_of,
    short_name,
)

TRITON = next(rule for rule in registry.IMPLEMENTATIONS if rule.name == "triton_impl")
OPERATIONS = sorted(TRITON.operations or ())
PAIRS = [(operation, case.name) for operation in OPERATIONS for case in cases_of(operation)]
STATE = ("num_computed_tokens", "last_token")
POOLS = ("k_pages", "v_pages", "index_k_pages")
IN_PLACE = {"cache/place_heads": POOLS, "cache/write_kv": POOLS}


def arguments_of(operation, case_name, device):
    """Return the contract's arguments by name, tensors on the device; what the case leaves out has its default."""
    given = inputs_of(operation, case_name)
    names = inspect.signature(contract_of(operation)).parameters
    filled = {name: None if names[name].default is inspect.Parameter.empty else names[name].default for name in names}
    return {name: on_device(value, device) for name, value in {**filled, **given}.items()}


def on_device(value, device):
    """Move a tensor without losing its strides: a case may be about them."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.device.type == torch.device(device).type:
        return value
    if value.is_contiguous():
        return value.to(device)
    moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return moved.copy_(value)


def run_triton(operation, arguments):
    """Return the results of the Triton implementation, and after them the pools that it wrote into."""
    with torch.inference_mode():
        result = getattr(module_of(operation, "triton_impl"), short_name(operation))(*arguments.values())
    if operation in IN_PLACE:
        written = tuple(arguments[name] for name in IN_PLACE[operation] if arguments[name] is not None)
        return (*(() if result is None else as_tuple(result)), *written)
    return as_tuple(result)


def comparable(tensor):
    """Return values that compare as equal where both are NaN, in a dtype that torch can compare."""
    return (tensor.float() if tensor.dtype.itemsize == 1 and tensor.is_floating_point() else tensor).nan_to_num(7e7)


def with_strides(arguments, stride):
    """Return the arguments with every one-dimensional tensor as a view that is not contiguous.

    Args:
        arguments: of a contract, by name. Row state, which is written in place, stays as it is.
        stride: 2 for a column of a wider tensor, which holds other values beside it; 0 for one value that stands for
            all, where all are equal, as an expanded tensor of a single request has it.
    """
    strided = dict(arguments)
    for name, value in arguments.items():
        if not isinstance(value, torch.Tensor) or value.dim() != 1 or name in STATE or not len(value):
            continue
        if stride == 2:
            strided[name] = torch.stack([value, torch.full_like(value, 3)], dim=1)[:, 0]
        elif bool((value == value[0]).all()):
            strided[name] = value[:1].expand(len(value))
    return strided


def check_triton_case(operation, case_name, device):
    """The implementation is within the case's tolerance of the oracle, or equal to the reference where all is exact."""
    case = next(case for case in cases_of(operation) if case.name == case_name)
    arguments = arguments_of(operation, case_name, device)
    if operation.split("/")[0] in FAMILIES:
        results = tuple(result.cpu() for result in run_triton(operation, arguments))
        assert accepts(case, results, expected_of(operation, inputs_of(operation, case_name))), case.guards
        return
    wanted = arguments_of(operation, case_name, "cpu")
    results = (*run_triton(operation, arguments), *arguments.values())
    expected = (*as_tuple(reference_of(operation)(*wanted.values())), *wanted.values())
    # Bit for bit, with whatever was written in place; a result that is None stands on both sides.
    for result, want in zip(results, expected, strict=True):
        if isinstance(want, torch.Tensor):
            assert torch.equal(comparable(result.cpu()), comparable(want)), case.guards
