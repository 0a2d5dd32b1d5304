"""Guarded memory: every tensor that a kernel may touch lies between two stretches of a known pattern.

A write beside a tensor changes the pattern. What is allocated and never written holds the pattern too, so a result that
shows it was not computed; and floating-point patterns are NaN, so a value that was read beside a tensor spreads. Each
tensor has a pattern of its own, so that a copy that runs over on both sides does not restore what it overwrites.
Works wherever torch does, so the same cases are guarded in the interpreter and on a GPU.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode

GUARD_BYTES = 32_768
NUM_PATTERNS = 14
FLOAT_BYTES = (0xF1, 0xFF)  # the lower one counts up; NaN in every format of two bytes and more
OTHER_BYTES = (0x41, 0x5B)  # as an id it is far outside, and no kernel writes it
FACTORIES = {
    getattr(torch, name)
    for name in ("empty", "empty_like", "zeros", "zeros_like", "full", "full_like", "ones", "empty_strided")
} | {torch.Tensor.new_empty, torch.Tensor.new_zeros, torch.Tensor.new_full, torch.Tensor.clone}
UNWRITTEN = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty}


class Trampled(AssertionError):
    """Something was written beside a tensor."""


class Canaries(TorchFunctionMode):
    """While active, what the factories of torch allocate is guarded; other tensors by `place`."""

    def __init__(self):
        super().__init__()
        self.guarded = []  # (what, whole allocation, bytes of the tensor, the two bytes of the pattern)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if function not in FACTORIES or not made.numel():
            return made
        name = f"allocation {len(self.guarded)} ({function.__name__}, {list(made.shape)})"
        return self._guard(name, made, is_written=function not in UNWRITTEN)

    def place(self, name, tensor):
        """Return a guarded tensor with the same values and strides."""
        return self._guard(name, tensor, is_written=True)

    def _guard(self, name, tensor, *, is_written):
        extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        num_bytes = extent * tensor.element_size() if tensor.numel() else 0
        low, high = FLOAT_BYTES if tensor.is_floating_point() else OTHER_BYTES
        pattern = torch.tensor([low + len(self.guarded) % NUM_PATTERNS, high], dtype=torch.uint8, device=tensor.device)
        # Kernels are specialised by alignment: the tensor begins where an allocation of its own would.
        whole = pattern.repeat(GUARD_BYTES + -(-num_bytes // 256) * 128)
        inside = whole[GUARD_BYTES : GUARD_BYTES + num_bytes].view(tensor.dtype)
        placed = inside.as_strided(tensor.shape, tensor.stride()) if num_bytes else inside.view(tensor.shape)
        if is_written and num_bytes:
            # An axis of stride 0 stands for one value.
            once = tuple(slice(None) if step else slice(0, 1) for step in tensor.stride())
            placed[once].copy_(tensor[once])
        self.guarded.append((name, whole, num_bytes, pattern))
        return placed

    def check(self):
        """Raise `Trampled` with the tensor's name and the side."""
        for name, whole, num_bytes, pattern in self.guarded:
            is_changed = whole != pattern.repeat(len(whole) // 2)
            sides = {"before": is_changed[:GUARD_BYTES], "behind": is_changed[GUARD_BYTES + num_bytes :]}
            for side, changed in sides.items():
                if int(changed.sum()):
                    raise Trampled(f"{int(changed.sum())} bytes {side} {name} were written")


def guarded(arguments, canaries):
    """Return a contract's arguments with every tensor in guarded memory."""
    return {
        name: canaries.place(name, value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def same(one, other):
    """Return whether two tensors hold the same, where NaN is NaN; of one byte, the same bits."""
    if one.element_size() == 1:
        return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
    return torch.equal(one.nan_to_num(7e7), other.nan_to_num(7e7))


def check_guarded(run, arguments, expected):
    """Run in guarded memory: nothing beside a tensor is written, and the results are what they are without guards.

    Args:
        run: takes the arguments by name and returns a tuple of tensors or None.
        arguments: of the contract, by name.
        expected: the results of the same run without guards.
    """
    canaries = Canaries()
    placed = guarded(arguments, canaries)
    with canaries:
        results = run(placed)
    canaries.check()
    assert len(results) == len(expected)
    for place, (result, want) in enumerate(zip(results, expected, strict=True)):
        assert (result is None) == (want is None)
        if want is not None:
            assert same(result.cpu(), want.cpu()), f"result {place} depends on what lies beside or was in its memory"
    return canaries
