"""What a rank is told when it starts, and what all ranks must have in common before they meet."""

from __future__ import annotations

import msgspec
import torch

from slipstream.base.errors import ConfigError
from slipstream.base.switches import environment_switches
from slipstream.base.version import VERSION
from slipstream.config.resolve import config_digest
from slipstream.config.schema import EngineConfig
from slipstream.wire.ranks import RankIdentity


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker process runs on; handed over as JSON in its private folder.

    Args:
        config: the same on every rank.
        rank: which one it is, 1 .. tp_size - 1.
        timeout_s: how long it waits for the others, to meet and in every collective operation.
    """

    config: EngineConfig
    rank: int
    timeout_s: float


def identity_of(config: EngineConfig) -> RankIdentity:
    """Return what this process runs on, as far as decisions depend on it.

    The digest is made of the configuration as this process read it, by this process's code.
    """
    switches = environment_switches()
    values = {name: getattr(switches, name) for name in switches.__slots__ if name in switches.given}
    return RankIdentity(
        config=config_digest(config),
        switches=", ".join(f"{name}={value}" for name, value in sorted(values.items())) or "none",
        version=VERSION,
        torch=str(torch.__version__),
        arithmetic=torch.backends.cpu.get_cpu_capability(),
    )


def check_identity(rank: int, theirs: RankIdentity, ours: RankIdentity) -> None:
    """Refuse a rank that runs on something else than rank 0.

    Raises:
        ConfigError: the message names every difference, with both values.
    """
    differences = [
        f"{field} is {getattr(ours, field)} on rank 0 and {getattr(theirs, field)} on rank {rank}"
        for field in ours.__struct_fields__
        if getattr(ours, field) != getattr(theirs, field)
    ]
    if differences:
        raise ConfigError(
            f"ranks would take different decisions: {'; '.join(differences)}. Start all ranks from one installation, "
            "with one configuration and one environment"
        )
