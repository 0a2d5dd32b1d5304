"""The folder of one training run: which run it holds, where its parts lie, and files that are whole or absent.

run.json               what run this is
texts/00000.safetensors, ...   what the target wrote
checkpoint.safetensors where training stands
untrained/, <kind>/    the drafter before and after training
loss.csv, *.png, result.toml
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.training.settings import digest_of

RUN_FILE = "run.json"
_PARTIAL = ".partial"


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file so that it is there as a whole or not at all, whenever this process or the machine stops.

    Args:
        path: of the file; what is there is replaced.
        write: writes to the path that it is given.

    Raises:
        CapacityError: the disk is full, or the place cannot be written.
    """
    partial = path.with_name(path.name + _PARTIAL)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(partial)
        # The library writes tensors that only their owner may read; whoever may enter the folder may read its files.
        partial.chmod(path.parent.stat().st_mode & 0o666)
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise CapacityError(f"{path}: could not be written ({error}); make room, then go on with --resume") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file as a whole."""
    write_whole(path, lambda partial: _put_text(partial, text))


def _put_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class RunFolder:
    """Paths of a run. Made by `open_run`."""

    def __init__(self, root: Path, kind: str, digest: str) -> None:
        self.root = root
        self.digest = digest
        self.texts = root / "texts"
        self.checkpoint = root / "checkpoint.safetensors"
        self.drafter = root / kind
        self.untrained = root / "untrained"
        self.log = root / "loss.csv"
        self.loss_plot = root / "loss.png"
        self.acceptance_plot = root / "acceptance.png"
        self.result = root / "result.toml"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from working on this run; the system lets go when this one ends, however it does.

        Raises:
            ConfigError: another process works on it.
        """
        with (self.root / RUN_FILE).open("rb") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(f"--out {self.root}: another process works on this run; wait for its end") from None
            yield


def open_run(root: Path, identity: dict[str, Any], *, kind: str, resume: bool) -> RunFolder:
    """Begin a run in a folder, or continue the one that it holds.

    Args:
        root: the folder; made if it is not there.
        identity: see `settings.run_identity`.
        kind: of the drafter.
        resume: continue a run that is there. Without one, a run begins either way.

    Raises:
        ConfigError: the folder holds a run and was not to be continued, holds another run, or holds other files.
    """
    digest = digest_of(identity)
    file = root / RUN_FILE
    if root.exists() and not root.is_dir():
        raise ConfigError(f"--out {root}: this is a file; give a folder")
    if file.is_file():
        _compare(root, file, identity, resume=resume)
    elif root.is_dir() and any(root.iterdir()):
        raise ConfigError(f"--out {root}: the folder holds files and no training run ({RUN_FILE}); give an empty one")
    else:
        try:
            write_text(file, json.dumps({"digest": digest, "identity": identity}, indent=1) + "\n")
        except CapacityError as error:
            raise ConfigError(f"--out {root}: cannot be written to ({error.__cause__}); give another folder") from None
    return RunFolder(root, kind, digest)


def _compare(root: Path, file: Path, identity: dict[str, Any], *, resume: bool) -> None:
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))["identity"]
        differing = sorted(
            name for name in stored.keys() | identity.keys() if stored.get(name) != _as_json(identity.get(name))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: does not say which run this folder holds ({error}); give another folder") from None
    if differing:
        shown = ", ".join(
            f"{name} (there {_show(stored.get(name))}, now {_show(identity.get(name))})" for name in differing
        )
        raise ConfigError(f"--out {root}: the folder holds another run; different: {shown}. Give another folder")
    if not resume:
        raise ConfigError(f"--out {root}: the folder holds this run already; add --resume, or give another folder")


def _as_json(value: object) -> object:
    return json.loads(json.dumps(value))


def _show(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:12] + '…"'
