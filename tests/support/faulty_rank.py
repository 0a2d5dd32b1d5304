"""A rank whose faults a test can switch on and off while it runs: `python -m support.faulty_rank` is a worker.

The fault is a word in the file that the environment variable FAULT_FILE names; an empty or missing file is a sound
rank. `tie` ties the best two logits on every rank that is built here. From the others only ranks above 0 suffer:
`tie_ulp` raises the later of the tied logits by one unit in the last place, after the logits were gathered;
`hidden_ulp` moves the states by one unit before the head, so before the gathering; `raise` is a kernel that refuses.
`version` and `load` are looked for once, at the start.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import torch

from slipstream.base.errors import CheckpointError, KernelError
from slipstream.engine import rank_setup, worker
from slipstream.runner.build import build_runner

FAULT_FILE = "FAULT_FILE"


def fault() -> str:
    """Return the fault that is on."""
    path = Path(os.environ.get(FAULT_FILE, ""))
    return path.read_text() if path.is_file() else ""


class FaultyModel:
    """A target network that does as the file says."""

    def __init__(self, model, rank):
        self._model = model
        self._rank = rank
        self.embed = model.embed

    def forward(self, inputs, caches):
        """As the target; a rank above 0 may refuse."""
        if fault() == "raise" and self._rank:
            raise KernelError("a kernel of this rank refuses")
        return self._model.forward(inputs, caches)

    def compute_logits(self, hidden):
        """As the target, with ties and with noise."""
        if fault() == "hidden_ulp" and self._rank:
            hidden = torch.nextafter(hidden, torch.full_like(hidden, float("inf")))
        logits = self._model.compute_logits(hidden)
        if not fault().startswith("tie"):
            return logits
        best = logits.argmax(-1, keepdim=True)
        twin = (best - 1) % logits.shape[-1]
        top = logits.gather(-1, best)
        logits = logits.scatter(-1, twin, top)
        if fault() == "tie_ulp" and self._rank:
            raised = torch.nextafter(top, torch.full_like(top, float("inf")))
            logits = logits.scatter(-1, torch.maximum(best, twin), raised)
        return logits


def build(config, on_progress, group=None):
    """Build a runner over a FaultyModel."""
    rank = 0 if group is None else group.mesh.tp_rank
    if fault() == "load" and rank:
        raise CheckpointError("this rank cannot read its part")
    built = build_runner(config, on_progress, group)
    parts = built.runner._parts
    built.runner._parts = dataclasses.replace(parts, model=FaultyModel(parts.model, rank))
    return built


if __name__ == "__main__":
    if fault() == "version":
        rank_setup.VERSION = "0.0.0+other"
    sys.exit(worker.main(build=build))
