"""Random weights of one rank, made on the device in their run-time form: what a step costs does not need a checkpoint.

Every code occurs; scales are chosen so that activations keep their size through a product.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from slipstream.base.errors import UnsupportedFeature
from slipstream.config.schema import TargetSpec
from slipstream.decode_targets.m3.sm90_nvfp4.weights import (
    DenseMlpWeights,
    LayerWeights,
    MixtureWeights,
    Mxfp8Matrix,
    Nvfp4Experts,
    TargetWeights,
)
from slipstream.kernels.linear.matmul_mxfp8 import layout as mxfp8_layout
from slipstream.kernels.moe.experts_nvfp4 import layout as nvfp4_layout
from slipstream.layers.rope import build_rope_table
from slipstream.models.m3.geometry import RankSizes

_CODE_SIZE = 2.9
"""Root mean square of the sixteen e2m1 values."""


class RandomWeights:
    """Draws the weights of one rank.

    Args:
        spec: the network.
        sizes: what the rank holds.
        device: where.
        seed: of the draws.
    """

    def __init__(self, spec: TargetSpec, sizes: RankSizes, device: torch.device, seed: int = 0) -> None:
        self._spec = spec
        self._sizes = sizes
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def make(self, max_positions: int) -> TargetWeights:
        """Return the weights of all layers.

        Args:
            max_positions: rows of the rotary table.

        Raises:
            UnsupportedFeature: a rank's slice of an expert is not whole tiles.
        """
        spec, sizes = self._spec, self._sizes
        if sizes.expert_columns % nvfp4_layout.TILE or spec.hidden_size % nvfp4_layout.TILE:
            raise UnsupportedFeature(
                f"sm90_nvfp4: a rank holds {sizes.expert_columns} columns of an expert of width {spec.hidden_size}; "
                f"both must be multiples of {nvfp4_layout.TILE}: take fewer ranks"
            )
        return TargetWeights(
            embedding=self._normal(sizes.vocab_rows, spec.hidden_size),
            layers=tuple(self._layer(number) for number in range(spec.num_layers)),
            norm=self._gain(spec.hidden_size),
            head=self._normal(sizes.vocab_rows, spec.hidden_size),
            rope_table=build_rope_table(max_positions, spec.rotary_dim, spec.rope_theta, self._device),
        )

    def _layer(self, number: int) -> LayerWeights:
        spec, sizes = self._spec, self._sizes
        hidden, head_dim = spec.hidden_size, spec.head_dim
        has_index = spec.is_sparse_layer[number]
        num_index = sizes.num_index_heads + 1 if has_index else 0
        num_rows = (sizes.num_heads + 2 * sizes.num_kv_heads + num_index) * head_dim
        if spec.is_moe_layer[number]:
            mlp = self._mixture()
        else:
            mlp = DenseMlpWeights(
                self._mxfp8(2 * sizes.dense_columns, hidden), self._mxfp8(hidden, sizes.dense_columns)
            )
        return LayerWeights(
            input_norm=self._gain(hidden),
            qkv=self._mxfp8(num_rows, hidden),
            head_norm=self._gain(4 if has_index else 2, head_dim),
            o=self._mxfp8(hidden, sizes.num_heads * head_dim),
            post_attention_norm=self._gain(hidden),
            mlp=mlp,
        )

    def _mixture(self) -> MixtureWeights:
        spec, sizes = self._spec, self._sizes
        hidden = spec.hidden_size
        return MixtureWeights(
            router_weight=self._normal(spec.num_experts, hidden, size=1 / sqrt(hidden)).float(),
            router_bias=torch.zeros(spec.num_experts, device=self._device),
            experts=Nvfp4Experts(
                *self._nvfp4(2 * sizes.expert_columns, hidden), *self._nvfp4(hidden, sizes.expert_columns)
            ),
            shared_gate_up=self._mxfp8(2 * sizes.shared_columns, hidden),
            shared_down=self._mxfp8(hidden, sizes.shared_columns),
        )

    def _mxfp8(self, num_rows: int, num_columns: int) -> Mxfp8Matrix:
        values = torch.randn(num_rows, num_columns, generator=self._generator, device=self._device) * 64
        codes = values.to(torch.float8_e4m3fn)
        exponent = round(torch.tensor(64 * sqrt(num_columns)).log2().item())
        scales = torch.full((num_rows, num_columns // 32), 127 - exponent, dtype=torch.uint8, device=self._device)
        return Mxfp8Matrix(*mxfp8_layout.pack(codes, scales), num_rows)

    def _nvfp4(self, num_rows: int, num_columns: int) -> tuple[Tensor, Tensor]:
        tile = nvfp4_layout.TILE
        shape = (self._spec.num_experts, num_rows // tile, num_columns // tile, nvfp4_layout.TILE_WORDS)
        words = torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, generator=self._generator, device=self._device)
        # All codes are legal, scales are not: those of a tile whose scales are 1 stand in every tile.
        codes = torch.zeros(1, tile, tile // 2, dtype=torch.uint8, device=self._device)
        ones = torch.ones(1, tile, tile // nvfp4_layout.GROUP, device=self._device).to(torch.float8_e4m3fn)
        words[..., -2 * tile :] = nvfp4_layout.pack(codes, ones)[0, 0, 0, -2 * tile :]
        factor = 1 / (_CODE_SIZE * sqrt(num_columns))
        return words, torch.full((self._spec.num_experts,), factor, device=self._device)

    def _normal(self, *shape: int, size: float = 1.0) -> Tensor:
        values = torch.randn(shape, generator=self._generator, device=self._device, dtype=torch.bfloat16)
        return values * size

    def _gain(self, *shape: int) -> Tensor:
        """Return offsets from a gain of 1."""
        return torch.zeros(shape, dtype=torch.bfloat16, device=self._device)
