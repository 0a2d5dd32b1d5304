"""What one rank of this target holds, in the forms that its kernels read.

Not here: the forward pass (`forward`), reading checkpoints, random weights (`random_weights`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.kernels.linear.matmul_mxfp8 import layout as mxfp8_layout
from slipstream.kernels.linear.matmul_mxfp8.contract import matmul_mxfp8
from slipstream.kernels.moe.experts_nvfp4 import layout as nvfp4_layout
from slipstream.weights.formats.mxfp8 import quantise_mxfp8
from slipstream.weights.formats.nvfp4 import quantise_nvfp4


@dataclass(frozen=True, slots=True)
class Mxfp8Matrix:
    """A weight matrix in the run-time layout of `linear/matmul_mxfp8`."""

    words: Tensor  # [out_units, in_units, 2048] int16
    scale_words: Tensor  # [out_units, in_units / 4, 64] int64
    out_features: int

    def multiply(self, x: Tensor) -> Tensor:
        """Return the partial sums of x @ weight.T: [num_splits, num_tokens, out_features] float32."""
        return matmul_mxfp8(x, self.words, self.scale_words, self.out_features)

    @property
    def num_bytes(self) -> int:
        """Bytes that one product reads of it."""
        return self.words.nbytes + self.scale_words.nbytes


@dataclass(frozen=True, slots=True)
class Nvfp4Experts:
    """Routed experts in the run-time layout of `moe/experts_nvfp4`."""

    w13: Tensor  # [num_experts, 2 * width / 128, hidden_size / 128, 2304] int32
    w13_scale: Tensor  # [num_experts] float32
    w2: Tensor  # [num_experts, hidden_size / 128, width / 128, 2304] int32
    w2_scale: Tensor  # [num_experts] float32

    @property
    def expert_bytes(self) -> int:
        """Bytes that one expert's products read."""
        return (self.w13.nbytes + self.w2.nbytes) // len(self.w13)


@dataclass(frozen=True, slots=True)
class MixtureWeights:
    """The second half of a layer with experts."""

    router_weight: Tensor  # [num_experts, hidden_size] float32
    router_bias: Tensor  # [num_experts] float32
    experts: Nvfp4Experts
    shared_gate_up: Mxfp8Matrix
    shared_down: Mxfp8Matrix


@dataclass(frozen=True, slots=True)
class DenseMlpWeights:
    """The second half of a layer without experts."""

    gate_up: Mxfp8Matrix
    down: Mxfp8Matrix


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer."""

    input_norm: Tensor  # [hidden_size] bfloat16
    qkv: Mxfp8Matrix  # rows q, k, index_q, index_k, v
    head_norm: Tensor  # [2 or 4, head_dim] bfloat16; of q, k, and with an index branch index_q, index_k
    o: Mxfp8Matrix
    post_attention_norm: Tensor  # [hidden_size] bfloat16
    mlp: MixtureWeights | DenseMlpWeights


@dataclass(frozen=True, slots=True)
class TargetWeights:
    """One rank of the network."""

    embedding: Tensor  # [vocab_size, hidden_size] bfloat16
    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [hidden_size] bfloat16
    head: Tensor  # [vocab_size, hidden_size] bfloat16
    rope_table: Tensor  # [max_positions, rotary_dim] float32


def mxfp8_matrix(weight: Tensor) -> Mxfp8Matrix:
    """Quantise [out_features, in_features] weights; values that MXFP8 holds exactly stay what they are."""
    words, scale_words = mxfp8_layout.pack(*quantise_mxfp8(weight))
    return Mxfp8Matrix(words, scale_words, weight.shape[0])


def nvfp4_experts(gate: Tensor, up: Tensor, down: Tensor) -> Nvfp4Experts:
    """Quantise the matrices of all experts, gate and up of an expert with one factor.

    Args:
        gate: [num_experts, width, hidden_size].
        up: [num_experts, width, hidden_size].
        down: [num_experts, hidden_size, width].
    """
    first: list[tuple[Tensor, Tensor]] = []
    second: list[tuple[Tensor, Tensor]] = []
    factors: list[tuple[float, float]] = []
    for own_gate, own_up, own_down in zip(gate, up, down, strict=True):
        codes, scales, factor = quantise_nvfp4(torch.cat((own_gate, own_up)), None)
        down_codes, down_scales, down_factor = quantise_nvfp4(own_down, None)
        first.append((codes, scales))
        second.append((down_codes, down_scales))
        factors.append((float(factor), float(down_factor)))
    w13 = nvfp4_layout.pack(*(_interleaved(torch.stack(part)) for part in zip(*first, strict=True)))
    w2 = nvfp4_layout.pack(*(torch.stack(part) for part in zip(*second, strict=True)))
    scales = torch.tensor(factors, dtype=torch.float32, device=gate.device)
    return Nvfp4Experts(w13, scales[:, 0].contiguous(), w2, scales[:, 1].contiguous())


def _interleaved(gate_up: Tensor) -> Tensor:
    # Bits move, whatever they stand for: scales of eight bits are reordered as bytes.
    bits = gate_up.view(torch.uint8)
    gate, up = bits.chunk(2, dim=1)
    return nvfp4_layout.interleave(gate.contiguous(), up.contiguous()).view(gate_up.dtype)
