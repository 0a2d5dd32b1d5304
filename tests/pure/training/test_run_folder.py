from __future__ import annotations

import pytest
from safetensors import SafetensorError

from slipstream.base.errors import CapacityError, ConfigError
from slipstream.training.run_folder import open_run, write_text, write_whole

IDENTITY = {"settings.seed": 0, "settings.temperatures": (0.0, 1.0), "prompts": "a" * 64}


def open_it(root, identity=IDENTITY, resume=False):
    return open_run(root, identity, kind="eagle3", resume=resume)


def test_a_new_run_may_be_asked_to_go_on(tmp_path):
    assert open_it(tmp_path / "a").digest == open_it(tmp_path / "b", resume=True).digest


def test_a_run_goes_on_only_when_asked(tmp_path):
    first = open_it(tmp_path)
    with pytest.raises(ConfigError, match="holds this run already; add --resume"):
        open_it(tmp_path)
    again = open_it(tmp_path, resume=True)
    assert again.digest == first.digest
    assert again.drafter == tmp_path / "eagle3"


def test_another_run_is_told_apart_by_name(tmp_path):
    open_it(tmp_path)
    with pytest.raises(ConfigError, match=r"holds another run; different: settings\.seed \(there 0, now 7\)\. Give"):
        open_it(tmp_path, IDENTITY | {"settings.seed": 7}, resume=True)


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match="holds files and no training run"):
        open_it(tmp_path, resume=True)
    with pytest.raises(ConfigError, match="this is a file"):
        open_it(tmp_path / "mine.txt")
    with pytest.raises(ConfigError, match="cannot be written to"):
        open_it(tmp_path / "mine.txt" / "below")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.txt"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"identity": 3}'])
def test_a_damaged_mark_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ConfigError, match="does not say which run"):
        open_it(tmp_path, resume=True)


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    file = tmp_path / "deep" / "file"
    write_text(file, "first")

    def fail(partial):
        partial.write_text("half")
        raise OSError("disk full")

    with pytest.raises(CapacityError, match="disk full"):
        write_whole(file, fail)
    assert file.read_text() == "first"
    write_text(file, "second")
    assert [one.read_text() for one in file.parent.iterdir()] == ["second"]


def test_a_run_is_held_by_one_at_a_time(tmp_path):
    first, second = open_it(tmp_path), open_it(tmp_path, resume=True)
    with first.held(), pytest.raises(ConfigError, match="another process works on this run"), second.held():
        pass
    with second.held():
        pass


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_whoever_may_enter_the_folder_may_read_its_files(tmp_path, mode):
    tmp_path.chmod(mode)
    write_whole(tmp_path / "file", lambda partial: partial.touch(0o600))
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode & 0o666


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error")])
def test_a_full_disk_is_a_refusal_and_leaves_what_was_there(tmp_path, error):
    def fail(partial):
        partial.write_text("half")
        raise error

    file = tmp_path / "checkpoint"
    write_text(file, "whole")
    with pytest.raises(CapacityError, match="checkpoint: could not be written .*; make room, then go on with --resume"):
        write_whole(file, fail)
    assert [item.name for item in tmp_path.iterdir()] == ["checkpoint"]
    assert file.read_text() == "whole"
