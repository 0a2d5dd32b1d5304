"""Run a function on two ranks that are processes, over gloo."""

from __future__ import annotations

import multiprocessing
import sys

import torch

from slipstream.base.errors import EngineError
from slipstream.parallel.group import connect
from slipstream.parallel.mesh import Mesh

TIMEOUT_S = 120


def _enter(job, rank, tp_size, folder, path):
    sys.path[:] = path
    torch.set_num_threads(1)
    group = connect(Mesh(tp_size, rank), init_method=f"file://{folder}/meeting", backend="gloo", timeout_s=TIMEOUT_S)
    try:
        torch.save(job(group), f"{folder}/rank{rank}.pt")
    finally:
        group.close()


def run_processes(tp_size, job, folder):
    """Return job(group) of every rank, in rank order; the job is a function of an importable module."""
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=_enter, args=(job, rank, tp_size, str(folder), sys.path)) for rank in range(tp_size)
    ]
    for process in ranks:
        process.start()
    try:
        for process in ranks:
            process.join(TIMEOUT_S)
    finally:
        for process in ranks:
            if process.is_alive():
                process.kill()
                process.join()
    assert [process.exitcode for process in ranks] == [0] * tp_size
    return [torch.load(f"{folder}/rank{rank}.pt") for rank in range(tp_size)]


def use_group(group):
    """A job: sums, concatenations and broadcasts, of whole and of strided tensors."""
    rank = group.mesh.tp_rank
    x = torch.arange(6.0).view(2, 3) + 10 * rank
    return {
        "sum": group.all_reduce(x),
        "half_sum": group.all_reduce(torch.full((4,), 1.0 + rank, dtype=torch.bfloat16)),
        "last": group.all_gather(x),
        "first": group.all_gather(x, dim=0),
        "strided": group.all_gather(x.t(), dim=1),
        "broadcast": group.broadcast(torch.full((2, 3), 40 + rank, dtype=torch.int32)),
        "broadcast_floats": group.broadcast(x.clone()),
    }


def part_company(group):
    """A job: rank 1 leaves after one sum; rank 0 asks for another and says what it was told."""
    group.all_reduce(torch.ones(1))
    told = {"is_default_group": torch.distributed.is_initialized()}
    if group.mesh.tp_rank == 1:
        group.close()
    operations = {"sum": group.all_reduce, "gather": group.all_gather, "broadcast": group.broadcast}
    for name, operation in operations.items():
        try:
            operation(torch.ones(1))
        except EngineError as error:
            told[name] = f"{type(error).__name__}: {error}"
    return told
