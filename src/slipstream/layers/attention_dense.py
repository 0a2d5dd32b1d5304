"""Causal grouped-query attention over the whole context: the full-attention layers, and the draft layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from slipstream.batch.attention_inputs import AttentionInputs
from slipstream.kernels.attention.dense_attend.contract import dense_attend
from slipstream.kernels.cache.write_kv.contract import write_kv
from slipstream.kernels.norm.qk_norm_rope.contract import qk_norm_rope
from slipstream.layers.linear import HeldRows, MergedColumnLinear, RowLinear
from slipstream.layers.norm import HeadNorm
from slipstream.layers.parts import DirectModule, head_rows
from slipstream.parallel.group import TensorParallelGroup


@dataclass(frozen=True, slots=True)
class AttentionGeometry:
    """Sizes of an attention layer, over all ranks.

    Args:
        input_size: width of what is projected; twice hidden_size in an EAGLE-3 head.
        hidden_size: width of the result.
        rotary_dim: leading part of a head that is rotated, at most head_dim.
    """

    input_size: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int


class DenseAttention(DirectModule):
    """Projection, optional head norm, rotary embedding, cache write, attention, output projection.

    Args:
        geometry: sizes over all ranks.
        eps: of the head norm.
        group: the ranks.
        dtype: of the weights.
        device: of the weights.
        use_qk_norm: False only rotates: EAGLE-3 heads have no head norm.
        first_visible: first position that the layer stores; 1 in a draft layer whose rows are stored by token.
    """

    def __init__(
        self,
        geometry: AttentionGeometry,
        eps: float,
        *,
        group: TensorParallelGroup,
        dtype: torch.dtype,
        device: torch.device | str,
        use_qk_norm: bool = True,
        first_visible: int = 0,
    ) -> None:
        super().__init__()
        mesh, head_dim = group.mesh, geometry.head_dim
        query_heads = mesh.query_heads(geometry.num_heads, geometry.num_kv_heads)
        kv_heads = mesh.kv_heads(geometry.num_kv_heads)
        pieces = (
            HeldRows("q", head_rows(query_heads, head_dim)),
            HeldRows("k", head_rows(kv_heads, head_dim)),
            HeldRows("v", head_rows(kv_heads, head_dim)),
        )
        self.qkv_proj = MergedColumnLinear(geometry.input_size, pieces, dtype=dtype, device=device)
        self.qk_norm: HeadNorm | None = None
        if use_qk_norm:
            heads = (("q", len(query_heads)), ("k", len(kv_heads)))
            self.qk_norm = HeadNorm(heads, head_dim, eps, gemma=True, dtype=dtype, device=device)
        self.o_proj = RowLinear(
            geometry.num_heads * head_dim, geometry.hidden_size, group=group, dtype=dtype, device=device
        )
        self._num_heads = len(query_heads)
        self._num_kv_heads = len(kv_heads)
        self._head_dim = head_dim
        self._rotary_dim = geometry.rotary_dim
        self._first_visible = first_visible

    def forward(
        self,
        x: Tensor,
        inputs: AttentionInputs,
        k_pages: Tensor,
        v_pages: Tensor,
        rope_table: Tensor,
        rope_positions: Tensor | None = None,
    ) -> Tensor:
        """Write the tokens' keys and values, attend, and return [num_tokens, hidden_size].

        Args:
            x: [num_tokens, input_size].
            inputs: addressing; its positions say what is visible.
            k_pages: [num_pages, page_size, num_kv_heads of this rank, head_dim].
            v_pages: the same shape.
            rope_table: [max_positions, rotary_dim] float32.
            rope_positions: [num_tokens] int64; None rotates by inputs.positions.
        """
        positions = inputs.positions if rope_positions is None else rope_positions
        num_heads, num_kv_heads, head_dim = self._num_heads, self._num_kv_heads, self._head_dim
        heads = self.qkv_proj.forward(x).view(x.shape[0], num_heads + 2 * num_kv_heads, head_dim)
        qk, v = heads.split_with_sizes((num_heads + num_kv_heads, num_kv_heads), dim=1)
        q, k = self._norm_and_rotate(qk, rope_table, positions, 0).split_with_sizes((num_heads, num_kv_heads), dim=1)
        write_kv(k, v, k_pages, v_pages, inputs.slot_mapping)
        mixed = dense_attend(
            q, k_pages, v_pages, inputs.page_table, inputs.req_of_token, inputs.positions, self._first_visible
        )
        return self.o_proj.forward(mixed.flatten(1))

    def store(
        self,
        x: Tensor,
        inputs: AttentionInputs,
        k_pages: Tensor,
        v_pages: Tensor,
        rope_table: Tensor,
        rope_positions: Tensor | None = None,
    ) -> None:
        """Write the tokens' keys and values and attend to nothing; arguments as in `forward`."""
        positions = inputs.positions if rope_positions is None else rope_positions
        num_heads, num_kv_heads, head_dim = self._num_heads, self._num_kv_heads, self._head_dim
        weight = self.qkv_proj.weight[num_heads * head_dim :]
        k, v = functional.linear(x, weight).view(x.shape[0], 2 * num_kv_heads, head_dim).chunk(2, dim=1)
        k = self._norm_and_rotate(k, rope_table, positions, num_heads)
        write_kv(k, v, k_pages, v_pages, inputs.slot_mapping)

    def _norm_and_rotate(self, heads: Tensor, rope_table: Tensor, positions: Tensor, first_head: int) -> Tensor:
        if self.qk_norm is not None:
            return self.qk_norm.forward(heads, rope_table, positions, first_head)
        return qk_norm_rope(heads, None, None, 0.0, False, rope_table, positions)
