"""The command as a user types it, and as the machine stops it: by force, in the middle of training."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file

from slipstream.cli.main import main
from support.project import ROOT
from support.train_world import make_target, write_prompts

WAIT_S = 120


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    target, _ = make_target(folder / "target")
    prompts = write_prompts(folder / "prompts.jsonl")
    where = ["--target", str(target), "--prompts", str(prompts), "--device", "cpu", "--threads", "1", "--no-plots"]
    sizes = ["--write-tokens", "100", "--answer-tokens", "8", "--texts-per-file", "16", "--max-length", "64"]
    steps = ["--batch-tokens", "64", "--log-every", "1", "--checkpoint-every", "0", "--eval-tokens", "4"]
    return ["train-drafter", "eagle3", *where, *sizes, *steps, "--steps", "12", "--draft-len", "1", "--unroll", "2"]


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    captured = capsys.readouterr()
    return stopped.value.code, captured.out, captured.err


def test_a_process_that_is_killed_is_continued_to_the_same_head(capsys, words, tmp_path):
    code, out, err = run(capsys, *words, "--out", str(tmp_path / "straight"))
    assert code == 0, err
    assert "answers are the same without a drafter" in out
    assert "training 100%: step 12, loss" in err
    killed = tmp_path / "killed"
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from slipstream.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words, "--out", str(killed)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        ends = time.monotonic() + WAIT_S
        while not (killed / "checkpoint.safetensors").exists() and time.monotonic() < ends:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "result.toml").exists()
    code, _, err = run(capsys, *words, "--out", str(killed))
    assert code == 2
    assert "holds this run already; add --resume" in err
    assert run(capsys, *words, "--out", str(killed), "--resume")[0] == 0
    ours, theirs = (load_file(folder / "eagle3" / "model.safetensors") for folder in (killed, tmp_path / "straight"))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)


def test_what_cannot_be_run_is_one_line(capsys, words, tmp_path):
    for change, said in (
        (["--steps", "0"], "--steps 0: give a finite number above 0"),
        (["--draft-len", "99"], "draft_len=99 is not allowed: give auto or a whole number from 0 to 16"),
        (["--max-num-seqs", "0"], "max_num_seqs=0 is not allowed"),
        (["--tokens", "9"], "--steps, --tokens and --max-minutes: give one of them"),
        (["--taps", "9"], "--taps [9]: give different layers"),
        (["--draft-vocab-size", "100000"], "--draft-vocab-size 100000: the target has"),
        (["--device", "abacus"], "device"),
        (["--max-length", "5000"], "--max-length 5000: the target has 256 positions"),
    ):
        code, _, err = run(capsys, *words, "--out", str(tmp_path / "out"), *change)
        assert code == 2
        assert said in err
        assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
