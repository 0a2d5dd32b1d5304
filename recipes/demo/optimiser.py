"""Two optimisers for one network: orthogonalised momentum for inner matrices, AdamW for the rest."""

from __future__ import annotations

from typing import Any

import torch
from network import Network
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
MOMENTUM = 0.95
MATRIX_RATE = 4e-3
MATRIX_DECAY = 0.05


def orthogonalise(update: Tensor) -> Tensor:
    """Bring the singular values of a batch of matrices, [count, rows, cols], close to one.

    Source: the quintic Newton-Schulz iteration with the coefficients published with the Muon optimiser.
    """
    a, b, c = NEWTON_SCHULZ
    x = update.bfloat16()
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class MatrixOptimiser:
    """Nesterov momentum whose steps are orthogonalised; matrices of one shape are stacked."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.groups: dict[tuple[int, int], list[nn.Parameter]] = {}
        for parameter in parameters:
            self.groups.setdefault(tuple(parameter.shape[-2:]), []).append(parameter)
        self.momenta = {
            shape: torch.zeros(sum(p.numel() for p in group) // (shape[0] * shape[1]), *shape, device=group[0].device)
            for shape, group in self.groups.items()
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Apply one step; the size of an update does not depend on the shape of the matrix."""
        for shape, group in self.groups.items():
            grads = torch.cat([p.grad.reshape(-1, *shape) for p in group])
            momentum = self.momenta[shape]
            momentum.lerp_(grads, 1 - MOMENTUM)
            update = orthogonalise(grads.lerp(momentum, MOMENTUM)).float()
            pieces = update.split([p.numel() // (shape[0] * shape[1]) for p in group])
            data = [p.data for p in group]
            torch._foreach_mul_(data, 1 - rate * MATRIX_DECAY)
            steps = [piece.view(p.shape) for piece, p in zip(pieces, group, strict=True)]
            torch._foreach_add_(data, steps, alpha=-rate * 0.2 * max(shape) ** 0.5)


def adam_groups(network: Network) -> list[dict[str, Any]]:
    """Return the parameters that AdamW gets, with their rates; the rest is for MatrixOptimiser."""
    rates = {"embed": 4e-3, "head": 1.5e-3, "router": 1e-3, "index": 1.5e-3, "vector": 3e-3}
    chosen: dict[str, list[nn.Parameter]] = {kind: [] for kind in rates}
    for name, parameter in network.named_parameters():
        if name in ("embed", "head"):
            chosen[name].append(parameter)
        elif name.endswith("router"):
            chosen["router"].append(parameter)
        elif "index_" in name and parameter.ndim > 1:
            chosen["index"].append(parameter)
        elif parameter.ndim == 1:
            chosen["vector"].append(parameter)
    return [{"params": parameters, "lr": rates[kind], "full_rate": rates[kind]} for kind, parameters in chosen.items()]


class Optimiser:
    """Both optimisers behind one step."""

    def __init__(self, network: Network) -> None:
        groups = adam_groups(network)
        taken = {id(parameter) for group in groups for parameter in group["params"]}
        fused = network.embed.device.type == "cuda"
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=fused)
        self.matrices = MatrixOptimiser([p for p in network.parameters() if id(p) not in taken])
        self.parameters = list(network.parameters())

    def step(self, factor: float) -> None:
        """Apply gradients with every rate times `factor`, then clear them."""
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = group["full_rate"] * factor
        self.adam.step()
        self.matrices.step(MATRIX_RATE * factor)
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {"adam": self.adam.state_dict(), "momenta": self.matrices.momenta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.adam.load_state_dict(state["adam"])
        self.matrices.momenta = state["momenta"]
