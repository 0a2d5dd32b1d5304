"""Changed copies in a temporary folder, one at a time: what `changes.Workshop` asks for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.evaluation.changes import Change
from slipstream.evaluation.variants.copies import CONTROLS, weight_files, write_control, write_variant
from slipstream.evaluation.variants.features import FEATURES

_PREFIX = "slipstream-evaluate-"


class CopyWorkshop:
    """Makes changed copies of one checkpoint and of its drafter's head.

    Args:
        checkpoint: folder of the target.
        head: folder of the EAGLE-3 head, or None.
        seed: of random changes.
    """

    def __init__(self, checkpoint: Path, head: Path | None, seed: int = 0) -> None:
        self._checkpoint = checkpoint
        self._head = head
        self._seed = seed

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes, in the order of a report."""
        return tuple(feature.change for feature in FEATURES)

    @property
    def controls(self) -> tuple[str, ...]:
        """Names of the control drafters."""
        return CONTROLS if self._head is not None else ()

    @property
    def num_bytes(self) -> int:
        """Bytes of the checkpoint's weights."""
        return sum(file.stat().st_size for file in weight_files(self._checkpoint))

    @contextmanager
    def variant(self, feature: str) -> Iterator[Path | None]:
        """Give the folder of a changed checkpoint; None when the checkpoint does not have the feature.

        Raises:
            ConfigError: there is no such feature.
        """
        found = next((known for known in FEATURES if known.change.feature == feature), None)
        if found is None:
            names = ", ".join(known.change.feature for known in FEATURES)
            raise ConfigError(f"feature {feature!r} cannot be switched off; allowed: {names}")
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as parent:
            folder = Path(parent) / self._checkpoint.name
            with _room_for_copies(parent):
                has_feature = write_variant(self._checkpoint, folder, found, self._seed)
            yield folder if has_feature else None

    @contextmanager
    def control(self, name: str) -> Iterator[Path]:
        """Give the folder of a control drafter.

        Raises:
            ConfigError: there is no such control.
        """
        if self._head is None or name not in self.controls:
            raise ConfigError(f"control drafter {name!r}; allowed: {', '.join(self.controls) or 'none without a head'}")
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as parent:
            folder = Path(parent) / "head"
            with _room_for_copies(parent):
                write_control(self._head, folder, name, self._seed)
            yield folder


@contextmanager
def _room_for_copies(folder: str) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CapacityError(
            f"{folder}: the changed copy could not be written ({error}); make room, or set TMPDIR to a larger place"
        ) from error
