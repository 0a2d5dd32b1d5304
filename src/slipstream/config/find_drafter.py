"""Which drafter an engine gets: by name, by folder, or the one that came with the checkpoint.

Not here: what the drafter's fields mean; see `drafter`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.config.checkpoint import CONFIG_FILE
from slipstream.config.drafter import Eagle3Facts, block_drafter_kind, read_eagle3
from slipstream.config.fields import read_json
from slipstream.config.schema import DrafterKind, TargetSpec

NAMES = ("auto", "none", "ngram", "eagle3")
DSPARK_REASON = "dspark is not supported yet (block drafting is not part of this release)"
_BUNDLE = "eagle3"
_BLOCK_BUNDLES = ("dspark", "dflash")


class DrafterChoice(NamedTuple):
    """A drafter, its folder and facts (EAGLE-3 only), and the reason for it."""

    kind: DrafterKind
    folder: Path | None
    facts: Eagle3Facts | None
    note: str


def choose_drafter(asked: str | None, checkpoint: Path, target: TargetSpec) -> DrafterChoice:
    """Return the drafter.

    Args:
        asked: none, ngram, eagle3, dspark or a folder; None takes what the checkpoint brings.
        checkpoint: folder of the target.
        target: the network that is drafted for.

    Returns:
        The choice.

    Raises:
        ConfigError: an unknown name, a kind that is not supported yet, or eagle3 without a head to be found.
        CheckpointError: the head cannot be read or does not fit.
    """
    if asked is None:
        return _bundled(checkpoint, target)
    if asked == "none":
        return DrafterChoice("none", None, None, "")
    if asked == "ngram":
        return DrafterChoice("ngram", None, None, "")
    if asked == "dspark":
        raise ConfigError(f"drafter=dspark: {DSPARK_REASON}; allowed: {', '.join(NAMES)} or the folder of a head")
    if asked == "eagle3":
        found = [folder for folder in _places(checkpoint, _BUNDLE) if folder.is_dir()]
        if not found:
            looked = " and ".join(str(folder) for folder in _places(checkpoint, _BUNDLE))
            raise ConfigError(f"drafter=eagle3: no head at {looked}; give the head's folder as drafter instead")
        return DrafterChoice("eagle3", found[0], read_eagle3(found[0], target), f"found at {found[0]}")
    folder = Path(asked).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"drafter={asked!r}: not a folder; allowed: {', '.join(NAMES)} or the folder of a head")
    return DrafterChoice("eagle3", folder, read_eagle3(folder, target), "")


def _places(checkpoint: Path, name: str) -> tuple[Path, Path]:
    """Return where a bundled drafter may lie: inside the checkpoint, or beside it."""
    return checkpoint / name, checkpoint.resolve().parent / name


def _bundled(checkpoint: Path, target: TargetSpec) -> DrafterChoice:
    block = _bundled_block_drafter(checkpoint)
    passed_over = f"; the bundled {block[0]} drafter ({block[1]}) is passed over: {DSPARK_REASON}" if block else ""
    inside, beside = _places(checkpoint, _BUNDLE)
    if inside.is_dir():
        facts = read_eagle3(inside, target)
        return DrafterChoice("eagle3", inside, facts, f"bundled with the checkpoint{passed_over}")
    if beside.is_dir():
        try:
            facts = read_eagle3(beside, target)
        except (CheckpointError, ConfigError) as error:
            # A folder beside the checkpoint may belong to another one: name it to make this an error.
            return DrafterChoice(
                "none", None, None, f"the head beside the checkpoint is not used: {error}{passed_over}"
            )
        note = (
            f"taken without being asked for: {beside} lies beside the checkpoint, not inside it, and fits by its "
            "configuration; give drafter=none or another folder if it was made for another checkpoint"
        )
        return DrafterChoice("eagle3", beside, facts, note + passed_over)
    return DrafterChoice("none", None, None, f"the checkpoint brings no supported drafter{passed_over}")


def _bundled_block_drafter(checkpoint: Path) -> tuple[str, str] | None:
    """Return (kind, where) of a block drafter that came with the checkpoint, or None."""
    for name in _BLOCK_BUNDLES:
        for folder in _places(checkpoint, name):
            if (folder / CONFIG_FILE).is_file():
                kind = block_drafter_kind(read_json(folder / CONFIG_FILE, purpose="the drafter's configuration"))
                if kind is not None:
                    return kind, str(folder)
    index = checkpoint / "model.safetensors.index.json"
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {})
        except (OSError, ValueError, AttributeError):
            return None  # the weight reader reports a broken index with its own message
        if any(".dspark." in name for name in weight_map):
            return "dspark", "tensors inside the checkpoint"
    return None
