"""The target of a run: its folder, its configuration, and the engine's options for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.base.switches import environment_switches
from slipstream.config.checkpoint import CONFIG_FILE
from slipstream.config.hardware import probe_hardware
from slipstream.config.options import read_options
from slipstream.config.resolve import DEMO, resolve
from slipstream.config.schema import EngineConfig
from slipstream.demo import demo_path
from slipstream.engine.facts import facts_of
from slipstream.frontend.processor import Processor, TextParts
from slipstream.training.settings import TrainSettings, check_settings

MAX_AUTO_LENGTH = 1024
_TOKENIZER_FILE = "tokenizer.json"


def find_target(name: str) -> Path:
    """Return the folder of a target that can write: `demo`, or a checkpoint with a tokenizer.

    Raises:
        CheckpointError: no such folder, or a file is missing.
    """
    folder = demo_path() if name == DEMO else Path(name).expanduser()
    if not folder.is_dir():
        raise CheckpointError(f"--target {name}: no such folder; give demo, or the folder of a checkpoint")
    for file, purpose in ((CONFIG_FILE, "no model"), (_TOKENIZER_FILE, "the target has to write text")):
        if not (folder / file).is_file():
            raise CheckpointError(f"--target {name}: {file} is missing ({purpose}); give a complete checkpoint")
    return folder


def settle_target(target: Path, **options: Any) -> EngineConfig:
    """Return the engine's configuration for a target.

    Args:
        target: its folder.
        options: of the option table, by name.

    Raises:
        ConfigError: an option that is not allowed.
        CheckpointError: the checkpoint's configuration cannot be read.
        CapacityError: it does not fit this machine.
    """
    return resolve(read_options({"model": str(target)} | options), probe_hardware(), environment_switches())


def make_processor(target: Path, config: EngineConfig) -> Processor:
    """Return what renders prompts for an engine of this configuration, without starting one.

    Raises:
        CheckpointError: tokenizer or template cannot be read, or do not fit the model.
    """
    return Processor(TextParts.load(target), facts_of(config))


def settle_settings(settings: TrainSettings, max_positions: int) -> TrainSettings:
    """Return settings whose longest text fits the target.

    Args:
        settings: a `max_length` of 0 takes the target's limit, at most 1,024; a `batch_tokens` of 0 four such texts.
        max_positions: of the target.

    Raises:
        ConfigError: a value outside its range.
    """
    length = settings.max_length or min(MAX_AUTO_LENGTH, max_positions)
    if length > max_positions:
        raise ConfigError(f"--max-length {length}: the target has {max_positions} positions; give no more")
    batch = settings.batch_tokens or 4 * length
    return check_settings(msgspec.structs.replace(settings, max_length=length, batch_tokens=batch))
