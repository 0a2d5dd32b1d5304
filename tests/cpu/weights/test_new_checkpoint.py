"""A folder of weights is there whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors import SafetensorError

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.weights import new_checkpoint as module
from slipstream.weights.new_checkpoint import check_target, new_checkpoint, write_companions


def make(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in {"config.json": "{}", "model.safetensors": "old", **files}.items():
        (folder / name).write_text(text)
    return folder


def write_and_fail(source: Path, target: Path, error: Exception) -> None:
    with new_checkpoint(source, target, 10, is_forced=False) as folder:
        (folder / "half").write_text("x")
        raise error


def test_the_target_appears_when_the_block_ends_and_replaces_only_then(tmp_path: Path) -> None:
    source, target = make(tmp_path / "s"), tmp_path / "deep" / "t"
    for number, is_forced in enumerate((False, True)):
        with new_checkpoint(source, target, 10, is_forced=is_forced) as folder:
            assert folder.parent == target.parent
            (folder / "config.json").write_text(str(number))
            (folder / "model.safetensors").write_text("new")
            assert (target / "config.json").exists() == is_forced
        assert (target / "config.json").read_text() == str(number)
        assert [item.name for item in target.parent.iterdir()] == ["t"]


def test_a_failure_leaves_the_old_one_and_no_trace(tmp_path: Path) -> None:
    source, target = make(tmp_path / "s"), make(tmp_path / "t")

    def fail(folder: Path) -> None:
        (folder / "config.json").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_checkpoint(source, target, 10, is_forced=True) as folder:
        fail(folder)
    assert (target / "model.safetensors").read_text() == "old"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["s", "t"]


def test_a_rename_that_fails_puts_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = make(tmp_path / "s"), make(tmp_path / "t")
    real = Path.rename

    def fail(self: Path, place: Path) -> Path:
        if ".partial-" in self.name:
            raise OSError("no")
        return real(self, place)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(CapacityError, match="writing failed .no."), new_checkpoint(source, target, 10, is_forced=True):
        pass
    assert (target / "model.safetensors").read_text() == "old"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["s", "t"]


def test_a_place_that_cannot_be_written_is_one_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path / "s")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="no folder can have this name"):
        check_target(source, tmp_path / ("x" * 300), is_forced=False)
    for place in (tmp_path / "file" / "t", tmp_path / "t"):
        with (
            pytest.raises(ConfigError, match="cannot be written to; give another folder"),
            new_checkpoint(source, place, 10, is_forced=False),
        ):
            pass
        monkeypatch.setattr(module.os, "access", lambda path, mode: False)
    monkeypatch.undo()
    for error in (OSError(28, "No space left on device"), SafetensorError("I/O error")):
        with pytest.raises(CapacityError, match=r"DST=.*t: writing failed \(.*\); make room"):
            write_and_fail(source, tmp_path / "t", error)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["file", "s"]


def test_what_a_killed_run_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    source = make(tmp_path / "s")
    (make(tmp_path / ".t.partial-1") / "shard-00000.partial").write_text("half")
    make(tmp_path / ".other.partial-1")
    living = make(tmp_path / ".t.partial-2")
    with module._locked(living), new_checkpoint(source, tmp_path / "t", 10, is_forced=False):
        pass
    assert sorted(item.name for item in tmp_path.iterdir()) == [".other.partial-1", ".t.partial-2", "s", "t"]


def test_a_small_disk_is_refused_before_a_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=9))
    with (
        pytest.raises(CapacityError, match="take 10 bytes, but 9 are free"),
        new_checkpoint(make(tmp_path / "s"), tmp_path / "t", 10, is_forced=False),
    ):
        pass
    assert [item.name for item in tmp_path.iterdir()] == ["s"]


def test_force_replaces_checkpoints_and_empty_folders_and_nothing_else(tmp_path: Path) -> None:
    source = make(tmp_path / "s")
    (tmp_path / "empty").mkdir()
    check_target(source, tmp_path / "new", is_forced=False)
    check_target(source, tmp_path / "empty", is_forced=True)
    check_target(source, make(tmp_path / "t"), is_forced=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.json").write_text("{}")
    for name in ("file", "link", "dangling", "home"):
        with pytest.raises(ConfigError, match="it exists already"):
            check_target(source, tmp_path / name, is_forced=False)
        with pytest.raises(ConfigError, match="this is neither"):
            check_target(source, tmp_path / name, is_forced=True)


def test_companions_are_copied_without_weights_or_an_old_declaration(tmp_path: Path) -> None:
    extra = {"hf_quant_config.json": "old", "tokenizer.json": "{}", "model.safetensors.index.json": "{}", "x.pt": "w"}
    source, folder = make(tmp_path / "s", **extra), tmp_path / "t"
    make(source / "eagle3")
    make(source / "other")
    folder.mkdir()
    write_companions(source, folder, {"a": 1})
    assert sorted(item.name for item in folder.iterdir()) == ["config.json", "eagle3", "tokenizer.json"]
    assert json.loads((folder / "config.json").read_text()) == {"a": 1}
    assert (folder / "eagle3" / "model.safetensors").is_file()
