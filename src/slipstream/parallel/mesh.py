"""Which part of each axis a rank holds. Integer arithmetic only; no torch, no communication.

Attention is cut by key-value group, MLPs and experts by columns of their inner axis, embedding and head by vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Mesh:
    """One rank's place among the ranks that share every layer.

    Args:
        tp_size: tensor-parallel ranks, at least 1.
        tp_rank: this one, 0 .. tp_size - 1.

    Raises:
        ConfigError: tp_size or tp_rank is out of range.
    """

    tp_size: int = 1
    tp_rank: int = 0

    def __post_init__(self) -> None:
        if self.tp_size < 1 or not 0 <= self.tp_rank < self.tp_size:
            raise ConfigError(
                f"tp_rank {self.tp_rank} of tp_size {self.tp_size}; allowed is tp_size >= 1, tp_rank 0 .. tp_size - 1"
            )

    def columns(self, size: int, axis: str) -> range:
        """Return this rank's equal share of an axis.

        Raises:
            ConfigError: the axis does not divide by tp_size.
        """
        if size % self.tp_size:
            raise ConfigError(
                f"{axis} = {size} does not divide by tp_size = {self.tp_size}; choose a tp_size that divides it"
            )
        share = size // self.tp_size
        return range(self.tp_rank * share, (self.tp_rank + 1) * share)

    def vocabulary(self, vocab_size: int) -> range:
        """Return the token ids whose embedding and head rows this rank holds."""
        return self.columns(vocab_size, "vocab_size")

    def kv_heads(self, num_kv_heads: int) -> range:
        """Return the key-value heads of this rank; with more ranks than heads, neighbouring ranks hold the same one.

        Raises:
            ConfigError: neither of tp_size and num_kv_heads divides the other.
        """
        if num_kv_heads >= self.tp_size:
            return self.columns(num_kv_heads, "num_kv_heads")
        if self.tp_size % num_kv_heads:
            raise ConfigError(
                f"tp_size = {self.tp_size} is no multiple of num_kv_heads = {num_kv_heads}; "
                "choose a tp_size that divides the heads or is a multiple of them"
            )
        head = self.tp_rank * num_kv_heads // self.tp_size
        return range(head, head + 1)

    def query_heads(self, num_heads: int, num_kv_heads: int) -> range:
        """Return the query heads of this rank: all of one share, and all within its key-value heads.

        Raises:
            ConfigError: the heads do not divide among groups and ranks.
        """
        if num_heads % num_kv_heads:
            raise ConfigError(f"num_heads = {num_heads} is no multiple of num_kv_heads = {num_kv_heads}")
        held = self.kv_heads(num_kv_heads)
        heads = self.columns(num_heads, "num_heads")
        group = num_heads // num_kv_heads
        assert heads[0] // group == held[0]
        assert heads[-1] // group == held[-1]
        return heads

    def index_heads(self, num_index_heads: int, num_kv_heads: int) -> range:
        """Return the index query heads of this rank: those that choose blocks for its key-value heads.

        Raises:
            ConfigError: there is not exactly one index head per key-value head.
        """
        if num_index_heads != num_kv_heads:
            raise ConfigError(
                f"num_index_heads = {num_index_heads}, num_kv_heads = {num_kv_heads}; allowed is one index head per "
                "key-value head"
            )
        return self.kv_heads(num_kv_heads)

    def kv_replicas(self, num_kv_heads: int) -> int:
        """Return how many ranks hold each key-value head."""
        return self.tp_size * len(self.kv_heads(num_kv_heads)) // num_kv_heads
