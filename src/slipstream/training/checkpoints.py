"""Where training stands, in one file: weights, the optimiser's moments, counters and the log.

Batches and the learning rate follow from the counters, so nothing else is needed to go on as if nothing had happened.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from slipstream.base.errors import ConfigError
from slipstream.training.run_folder import write_whole

_STATE = "state"
_WEIGHT = "weight."
_MOMENT = "optimiser."


class LogRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log, averaged over the steps since the one before.

    Args:
        step: optimiser steps so far.
        tokens: tokens of training texts so far.
        seconds: of stepping, so far.
        loss: mean.
        reached: per draft position the share of starts whose drafts were right up to there.
    """

    step: int
    tokens: int
    seconds: float
    loss: float
    reached: tuple[float, ...]

    @property
    def acceptance_length(self) -> float:
        """Return the tokens per verify step that these shares amount to."""
        return 1 + sum(self.reached)


class TrainState(msgspec.Struct, kw_only=True):
    """Counters of a run, and its log."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    rows: list[LogRow] = []


def save_checkpoint(
    path: Path, digest: str, state: TrainState, module: nn.Module, optimiser: torch.optim.Optimizer
) -> None:
    """Write a checkpoint as a whole.

    Args:
        path: the file.
        digest: of the run.
        state: counters and log.
        module: whose state dict is kept.
        optimiser: of the module's parameters, in their order.
    """
    tensors = {f"{_WEIGHT}{name}": tensor for name, tensor in module.state_dict().items()}
    for number, moments in optimiser.state_dict()["state"].items():
        tensors |= {f"{_MOMENT}{number}.{name}": torch.as_tensor(value) for name, value in moments.items()}
    held = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    metadata = {"digest": digest, _STATE: msgspec.json.encode(state).decode()}
    write_whole(path, lambda partial: save_file(held, partial, metadata=metadata))


def load_checkpoint(path: Path, digest: str, module: nn.Module, optimiser: torch.optim.Optimizer) -> TrainState:
    """Return where training stood, and put weights and moments back; a new state where there is no checkpoint.

    Raises:
        ConfigError: the file is damaged, or of another run.
    """
    if not path.is_file():
        return TrainState()
    try:
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        state = msgspec.json.decode(metadata[_STATE], type=TrainState)
    except (SafetensorError, OSError, KeyError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: not a whole checkpoint ({error}); remove it to train from the start") from None
    if metadata.get("digest") != digest:
        raise ConfigError(f"{path}: belongs to another run; remove it to train from the start")
    _restore(tensors, module, optimiser)
    return state


def _restore(tensors: dict[str, Tensor], module: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    module.load_state_dict({k.removeprefix(_WEIGHT): v for k, v in tensors.items() if k.startswith(_WEIGHT)})
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_MOMENT):
            number, moment = name.removeprefix(_MOMENT).split(".", 1)
            moments.setdefault(int(number), {})[moment] = tensor
    # The optimiser's own groups hold what belongs to this device; only the moments come from the file.
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})


def log_as_csv(rows: list[LogRow]) -> str:
    """Return a log as comma-separated lines with a head."""
    width = max((len(row.reached) for row in rows), default=0)
    head = ["step", "tokens", "seconds", "loss", "acceptance_length", *(f"reached_{i + 1}" for i in range(width))]
    lines = [
        [row.step, row.tokens, f"{row.seconds:.1f}", f"{row.loss:.5f}", f"{row.acceptance_length:.4f}"]
        + [f"{share:.4f}" for share in row.reached]
        for row in rows
    ]
    return "\n".join([",".join(head), *(",".join(map(str, line)) for line in lines)]) + "\n"
