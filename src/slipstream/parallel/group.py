"""Sums and concatenations over the ranks of a mesh. One rank launches nothing.

Sums are taken in rank order on every rank, so all ranks hold the same bits and take the same decisions from them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import torch
from torch import Tensor, distributed

from slipstream.base.errors import ConfigError
from slipstream.parallel.mesh import Mesh


class TensorParallelGroup:
    """The ranks that share every layer, as one of them sees them.

    Args:
        mesh: this rank's place.
        process_group: the ranks in order; required exactly when there is more than one.

    Raises:
        ConfigError: the process group is missing, superfluous, or of another size or order than the mesh.
    """

    def __init__(self, mesh: Mesh, process_group: distributed.ProcessGroup | None = None) -> None:
        if (mesh.tp_size > 1) != (process_group is not None):
            raise ConfigError(f"tp_size = {mesh.tp_size}: a process group is needed exactly when it is above 1")
        if process_group is not None:
            given = (process_group.rank(), process_group.size())
            if given != (mesh.tp_rank, mesh.tp_size):
                raise ConfigError(f"process group (rank, size) = {given}, mesh = {(mesh.tp_rank, mesh.tp_size)}")
        self.mesh = mesh
        self._process_group = process_group

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of every rank's tensor; on one rank, x itself.

        Numerics: float32 in rank order, rounded once to x's dtype.
        """
        if self._process_group is None:
            return x
        total, *others = (part.float() for part in self._gather(x))
        for part in others:
            total = total + part
        return total.to(x.dtype)

    def all_gather(self, x: Tensor, dim: int = -1) -> Tensor:
        """Return every rank's tensor, concatenated in rank order along `dim`; on one rank, x itself."""
        if self._process_group is None:
            return x
        return torch.cat(self._gather(x), dim=dim)

    def close(self) -> None:
        """Leave the process group; nothing to do on one rank."""
        if self._process_group is not None:
            distributed.destroy_process_group()
            self._process_group = None

    def _gather(self, x: Tensor) -> list[Tensor]:
        source = x.contiguous()
        parts = [torch.empty_like(source) for _ in range(self.mesh.tp_size)]
        distributed.all_gather(parts, source, group=self._process_group)
        return parts


def one_rank() -> TensorParallelGroup:
    """Return the group of a single rank: every operation is the identity."""
    return TensorParallelGroup(Mesh())


def connect(mesh: Mesh, *, init_method: str, backend: Literal["gloo", "nccl"], timeout_s: float) -> TensorParallelGroup:
    """Meet the other ranks and return the group; a single rank meets nobody.

    Args:
        mesh: this rank's place.
        init_method: where the ranks meet, for example `tcp://127.0.0.1:29500` or `file:///tmp/meeting`.
        backend: gloo on CPUs, nccl on GPUs.
        timeout_s: how long to wait for the others, here and in every later operation.
    """
    if mesh.tp_size == 1:
        return one_rank()
    distributed.init_process_group(
        backend,
        init_method=init_method,
        rank=mesh.tp_rank,
        world_size=mesh.tp_size,
        timeout=timedelta(seconds=timeout_s),
    )
    return TensorParallelGroup(mesh, distributed.group.WORLD)
