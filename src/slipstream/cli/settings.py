"""From typed options to the configuration of this machine and environment."""

from __future__ import annotations

from slipstream.base.switches import environment_switches
from slipstream.config.hardware import probe_hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.config.schema import EngineConfig


def settle(options: Options) -> EngineConfig:
    """Resolve options against this machine and its environment switches.

    Raises:
        ConfigError: an option, a combination or a switch that is not allowed.
        CheckpointError: the checkpoint's configuration cannot be read.
        CapacityError: it does not fit this machine.
    """
    return resolve(options, probe_hardware(), environment_switches())
