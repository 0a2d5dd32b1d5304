"""The bytes of the paged cache: one arena per pool, typed views per layer.

Not here: which page belongs to whom (`cache.logical`), device page tables (`tables`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from slipstream.config.bytes import CacheGeometry, PoolGeometry

_TORCH_DTYPE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float8_e4m3": torch.float8_e4m3fn}


class PagePools:
    """All pools of one rank, allocated once.

    Args:
        geometry: what to allocate.
        device: where.
        poison: debug switch: the null page and every page handed to a row start as NaN, so that any read of a slot
            that nobody wrote shows in the logits.
    """

    def __init__(self, geometry: CacheGeometry, device: torch.device, *, poison: bool = False) -> None:
        self.geometry = geometry
        self.poison = poison
        self._arena: dict[str, Tensor] = {
            pool.name: _allocate(pool, geometry.num_pages, device) for pool in geometry.pools
        }
        if poison:
            for group in geometry.groups:
                self.poison_pages(group, [0])

    def has(self, name: str) -> bool:
        """Whether a pool of that name exists."""
        return name in self._arena

    def layer(self, name: str, layer: int) -> Tensor:
        """Return plane `layer` of a pool: [num_pages, *page_shape], a view."""
        return self._arena[name][layer]

    @property
    def num_bytes(self) -> int:
        """Bytes allocated; equals the geometry's account."""
        return sum(arena.numel() * arena.element_size() for arena in self._arena.values())

    def poison_pages(self, group: str, pages: list[int]) -> None:
        """Fill pages of every pool of a group with NaN (debug switch)."""
        for pool in self.geometry.pools:
            if pool.group == group and pages:
                self._arena[pool.name][:, pages] = float("nan")


def _allocate(pool: PoolGeometry, num_pages: int, device: torch.device) -> Tensor:
    shape = (pool.num_layers, num_pages, *pool.page_shape)
    return torch.zeros(shape, dtype=_TORCH_DTYPE[pool.dtype], device=device)
