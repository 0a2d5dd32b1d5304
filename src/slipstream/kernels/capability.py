"""Which GPUs the kernels are written for, checked before anything is compiled for another one."""

from __future__ import annotations

import torch

from slipstream.base.errors import ConfigError

MAJOR = 9
"""Compute capability 9.x, Hopper: kernels count on dependent launches, and on its sizes of shared memory."""


def check_capability(device: torch.device) -> None:
    """Refuse a GPU that the kernels were not written for; a CPU passes.

    Args:
        device: where an engine, or a check of kernels, is about to run.

    Raises:
        ConfigError: another compute capability.
    """
    if device.type != "cuda":
        return
    major, minor = torch.cuda.get_device_capability(device)
    if major != MAJOR:
        raise ConfigError(
            f"device=cuda: {torch.cuda.get_device_name(device)} has compute capability {major}.{minor}; the kernels "
            f"are written for and tested on {MAJOR}.0 (Hopper, for example H100 or H200). Give device=cpu"
        )
