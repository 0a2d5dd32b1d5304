"""Sums, concatenations and broadcasts over the ranks of a mesh. One rank launches nothing.

Sums are taken in rank order on every rank, so all ranks hold the same bits and take the same decisions from them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, distributed
from torch.distributed.rendezvous import rendezvous

from slipstream.base.errors import ConfigError, EngineError
from slipstream.parallel.mesh import Mesh

LOOPBACK = "127.0.0.1"
"""Where CPU ranks meet: they are processes of one machine, whose own name need not be known to any network."""


class RankLost(EngineError):
    """A collective did not come about: another rank is gone or silent. What happened to that one is the cause."""


class Members(Protocol):
    """What is needed of a process group of torch, whatever its back end."""

    def rank(self) -> int:
        """Return this rank."""
        ...

    def size(self) -> int:
        """Return the number of ranks."""
        ...

    def allgather(self, output_tensors: list[list[Tensor]], input_tensors: list[Tensor], /) -> Any:
        """Start filling `output_tensors[0]` with every rank's tensor; `wait` on what is returned."""
        ...

    def broadcast(self, tensor: Tensor, root: int, /) -> Any:
        """Start filling every rank's tensor with that of `root`; `wait` on what is returned."""
        ...


class TensorParallelGroup:
    """The ranks that share every layer, as one of them sees them.

    Args:
        mesh: this rank's place.
        process_group: the ranks in order; required exactly when there is more than one.

    Raises:
        ConfigError: the process group is missing, superfluous, or of another size or order than the mesh.
    """

    def __init__(self, mesh: Mesh, process_group: Members | None = None) -> None:
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

        Raises:
            RankLost: another rank is gone, or silent for longer than the group's timeout.
        """
        if self.mesh.tp_size == 1:
            return x
        total, *others = (part.float() for part in self._gather(x))
        for part in others:
            total = total + part
        return total.to(x.dtype)

    def all_gather(self, x: Tensor, dim: int = -1) -> Tensor:
        """Return every rank's tensor, concatenated in rank order along `dim`; on one rank, x itself.

        Raises:
            RankLost: another rank is gone, or silent for longer than the group's timeout.
        """
        if self.mesh.tp_size == 1:
            return x
        return torch.cat(self._gather(x), dim=dim)

    def broadcast(self, x: Tensor) -> Tensor:
        """Return rank 0's tensor on every rank; on one rank, x itself.

        Args:
            x: contiguous; on other ranks than 0 of the same shape and dtype, and overwritten.

        Raises:
            RankLost: another rank is gone, or silent for longer than the group's timeout.
        """
        if self.mesh.tp_size > 1:
            self._exchange(lambda members: members.broadcast(x, 0))
        return x

    def close(self) -> None:
        """Leave the process group; the other ranks find this one gone. Nothing to do on one rank."""
        group, self._process_group = self._process_group, None
        if group is not None and group is distributed.group.WORLD:
            distributed.destroy_process_group()

    def _gather(self, x: Tensor) -> list[Tensor]:
        source = x.contiguous()
        parts = [torch.empty_like(source) for _ in range(self.mesh.tp_size)]
        self._exchange(lambda members: members.allgather([parts], [source]))
        return parts

    def _exchange(self, begin: Callable[[Members], Any]) -> None:
        """Begin an operation of all ranks and wait for it."""
        if self._process_group is None:
            raise EngineError(f"rank {self.mesh.tp_rank} of {self.mesh.tp_size} has left its group")
        try:
            begin(self._process_group).wait()
        except RuntimeError as error:
            reason = str(error).partition(". This is typically")[0]
            raise RankLost(
                f"rank {self.mesh.tp_rank} of {self.mesh.tp_size}: another rank is gone or silent ({reason})"
            ) from error


def one_rank() -> TensorParallelGroup:
    """Return the group of a single rank: every operation is the identity."""
    return TensorParallelGroup(Mesh())


def connect(mesh: Mesh, *, init_method: str, backend: Literal["gloo", "nccl"], timeout_s: float) -> TensorParallelGroup:
    """Meet the other ranks and return the group; a single rank meets nobody.

    A gloo group is private: it does not become the default group of its process, so that a program can hold several,
    and another one of its own.

    Args:
        mesh: this rank's place.
        init_method: where the ranks meet, for example `tcp://127.0.0.1:29500` or `file:///path/of/a/new/file`.
        backend: gloo for CPU ranks of one machine, nccl for GPUs.
        timeout_s: how long to wait for the others, here and in every later operation.

    Raises:
        RankLost: the others did not come in time.
    """
    if mesh.tp_size == 1:
        return one_rank()
    timeout = timedelta(seconds=timeout_s)
    if backend == "gloo":
        return TensorParallelGroup(mesh, _meet_over_gloo(mesh, init_method, timeout))
    distributed.init_process_group(
        backend, init_method=init_method, rank=mesh.tp_rank, world_size=mesh.tp_size, timeout=timeout
    )
    return TensorParallelGroup(mesh, distributed.group.WORLD)


def _meet_over_gloo(mesh: Mesh, init_method: str, timeout: timedelta) -> Members:
    # Its options and operations are missing from torch's own type stubs.
    gloo: Any = distributed.ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=LOOPBACK)]
    options._timeout = timeout
    try:
        store, rank, size = next(rendezvous(init_method, mesh.tp_rank, mesh.tp_size, timeout=timeout))
        store.set_timeout(timeout)
        return gloo(store, rank, size, options)
    except RuntimeError as error:
        raise RankLost(
            f"rank {mesh.tp_rank} of {mesh.tp_size} did not meet the others at {init_method} within "
            f"{timeout.total_seconds():g} s: {error}"
        ) from error
