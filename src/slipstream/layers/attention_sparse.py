"""Block-sparse grouped-query attention: an index branch chooses blocks, the main branch attends to them.

The index branch never contributes to the output; its products only order the blocks. Index keys are written for
every token, also where the context is still short enough for all blocks to be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.base.errors import ConfigError
from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.kernels.attention.choose_blocks.contract import choose_blocks
from slipstream.kernels.attention.sparse_attend.contract import sparse_attend
from slipstream.kernels.cache.write_kv.contract import write_kv
from slipstream.layers.attention_dense import AttentionGeometry
from slipstream.layers.linear import HeldRows, MergedColumnLinear, RowLinear
from slipstream.layers.norm import HeadNorm
from slipstream.layers.parts import DirectModule, head_rows
from slipstream.parallel.group import TensorParallelGroup


@dataclass(frozen=True, slots=True)
class IndexGeometry:
    """The index branch, over all ranks.

    Args:
        num_index_heads: index query heads; one per key-value head.
        index_head_dim: width of an index query or key; equal to head_dim, so that one norm call serves all heads.
        topk: blocks per query token and key-value head, forced ones included.
        num_init_blocks: first blocks that are always chosen.
        num_local_blocks: last blocks up to the token's own that are always chosen.
    """

    num_index_heads: int
    index_head_dim: int
    topk: int
    num_init_blocks: int
    num_local_blocks: int


class SparseAttention(DirectModule):
    """Projection of both branches, head norm, rotary embedding, cache write, choice, attention, output projection.

    The fused projection has its rows in the order q, k, index_q, index_k, v: everything that is normalised first.

    Args:
        geometry: sizes of the main branch over all ranks.
        index: the index branch.
        eps: of the head norms.
        group: the ranks; the index key is replicated on all of them.
        dtype: of the weights.
        device: of the weights.

    Raises:
        ConfigError: index_head_dim differs from head_dim, or the heads do not divide among the ranks.
    """

    def __init__(
        self,
        geometry: AttentionGeometry,
        index: IndexGeometry,
        eps: float,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        super().__init__()
        mesh, head_dim = group.mesh, geometry.head_dim
        if index.index_head_dim != head_dim:
            raise ConfigError(
                f"index_head_dim = {index.index_head_dim}, head_dim = {head_dim}; allowed is that both are equal"
            )
        query_heads = mesh.query_heads(geometry.num_heads, geometry.num_kv_heads)
        kv_heads = mesh.kv_heads(geometry.num_kv_heads)
        index_heads = mesh.index_heads(index.num_index_heads, geometry.num_kv_heads)
        pieces = (
            HeldRows("q", head_rows(query_heads, head_dim)),
            HeldRows("k", head_rows(kv_heads, head_dim)),
            HeldRows("index_q", head_rows(index_heads, head_dim)),
            HeldRows("index_k", range(head_dim)),
            HeldRows("v", head_rows(kv_heads, head_dim)),
        )
        self.qkv_proj = MergedColumnLinear(geometry.input_size, pieces, dtype=dtype, device=device)
        heads = (("q", len(query_heads)), ("k", len(kv_heads)), ("index_q", len(index_heads)), ("index_k", 1))
        self.qk_norm = HeadNorm(heads, head_dim, eps, gemma=True, dtype=dtype, device=device)
        self.o_proj = RowLinear(
            geometry.num_heads * head_dim, geometry.hidden_size, group=group, dtype=dtype, device=device
        )
        self._normed_heads = tuple(count for _, count in heads)
        self._num_kv_heads = len(kv_heads)
        self._head_dim = head_dim
        self._index = index

    def forward(
        self,
        x: Tensor,
        inputs: AttentionInputs,
        k_pages: Tensor,
        v_pages: Tensor,
        index_k_pages: Tensor,
        rope_table: Tensor,
    ) -> Tensor:
        """Write the tokens' keys, values and index keys, choose, attend, and return [num_tokens, hidden_size].

        Args:
            x: [num_tokens, input_size].
            inputs: addressing of both cache groups.
            k_pages: [num_pages, page_size, num_kv_heads of this rank, head_dim].
            v_pages: the same shape.
            index_k_pages: [num_pages of its own, page_size, index_head_dim].
            rope_table: [max_positions, rotary_dim] float32.
        """
        num_normed = sum(self._normed_heads)
        heads = self.qkv_proj.forward(x).view(x.shape[0], num_normed + self._num_kv_heads, self._head_dim)
        normed, v = heads.split_with_sizes((num_normed, self._num_kv_heads), dim=1)
        rotated = self.qk_norm.forward(normed, rope_table, inputs.positions)
        q, k, index_q, index_k = rotated.split_with_sizes(self._normed_heads, dim=1)
        write_kv(
            k,
            v,
            k_pages,
            v_pages,
            inputs.slot_mapping,
            index_k.squeeze(1),
            index_k_pages,
            inputs.index_slot_mapping,
        )
        topk_blocks = choose_blocks(
            index_q,
            index_k_pages,
            inputs.index_page_table,
            inputs.req_of_token,
            inputs.positions,
            self._index.topk,
            self._index.num_init_blocks,
            self._index.num_local_blocks,
        )
        mixed = sparse_attend(
            q, k_pages, v_pages, inputs.page_table, inputs.req_of_token, inputs.positions, topk_blocks
        )
        return self.o_proj.forward(mixed.flatten(1))
