"""Weights for layers under test: full tensors by name, and every rank filled from them through its parts."""

from __future__ import annotations

import threading

import torch

from slipstream.parallel.group import TensorParallelGroup
from slipstream.parallel.mesh import Mesh


def modules_with_parts(module):
    return [(path, child) for path, child in module.named_modules() if hasattr(child, "parts")]


def region(parameter, part):
    """Return the view of a parameter that a part fills; experts keep their leading axis."""
    lead = (slice(None),) if parameter.dim() > len(part.target) else ()
    return parameter[(*lead, *part.target)]


def make_full(one_rank_module, seed=0):
    """Return (path, part name) -> full tensor, shaped as the one-rank module holds it, with uneven values."""
    generator = torch.Generator().manual_seed(seed)
    full = {}
    for path, child in modules_with_parts(one_rank_module):
        for part in child.parts:
            shape = region(getattr(child, part.parameter), part).shape
            fan_in = shape[-1] if len(shape) > 1 else 1
            full[path, part.name] = torch.randn(shape, generator=generator) * (fan_in**-0.5 if fan_in > 1 else 0.3)
    return full


def fill(module, full):
    """Fill a rank's module from full tensors, as a loader does; every element must be written."""
    with torch.no_grad():
        for path, child in modules_with_parts(module):
            written = {part.parameter for part in child.parts}
            for name in written:
                getattr(child, name).fill_(float("nan"))
            for part in child.parts:
                tensor = full[path, part.name]
                lead = (slice(None),) if tensor.dim() > len(part.source) else ()
                region(getattr(child, part.parameter), part).copy_(tensor[(*lead, *part.source)])
            for name in written:
                assert not getattr(child, name).isnan().any(), f"{path}.{name} has elements without a part"
    return module


class _Place:
    """Stands for a process group: one thread's rank among several."""

    def __init__(self, rank, size):
        self._rank, self._size = rank, size

    def rank(self):
        return self._rank

    def size(self):
        return self._size


class ThreadGroup(TensorParallelGroup):
    """The ranks are threads of one process; they meet at a barrier and read each other's tensors."""

    def __init__(self, mesh, board, barrier):
        super().__init__(mesh, _Place(mesh.tp_rank, mesh.tp_size))
        self._board, self._barrier = board, barrier

    def broadcast(self, x):
        if self.mesh.tp_size > 1:
            x.copy_(self._gather(x.clone())[0])
        return x

    def _gather(self, x):
        self._board[self.mesh.tp_rank] = x
        self._barrier.wait()
        parts = list(self._board)
        self._barrier.wait()
        return parts


def run_ranks(tp_size, job):
    """Run job(group) on tp_size ranks at once and return the results in rank order."""
    board, barrier = [None] * tp_size, threading.Barrier(tp_size, timeout=60)
    results, errors = [None] * tp_size, []

    def run(rank):
        try:
            with torch.inference_mode():
                results[rank] = job(ThreadGroup(Mesh(tp_size, rank), board, barrier))
        except Exception as error:  # noqa: BLE001 - handed to the caller, and the others must not wait
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(tp_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return results
