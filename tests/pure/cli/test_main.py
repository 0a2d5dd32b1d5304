from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slipstream.base.version import VERSION
from slipstream.cli.main import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    captured = capsys.readouterr()
    return stopped.value.code, captured.out, captured.err


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"slipstream {VERSION}\n", "")


@pytest.mark.parametrize(
    "command", ["serve", "generate", "chat", "explain", "doctor", "bench", "bench decode", "bench serve"]
)
def test_every_command_explains_itself(capsys, command):
    code, out, _ = run(capsys, *command.split(), "--help")
    assert code == 0
    assert f"slipstream {command}" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("explain --tp 3", "tp=3"),
        ("explain no/such/folder", "no/such/folder"),
        ("serve --tp 2", "tp=2: a server runs one rank"),
        ("serve --model demo", "--model demo: this command takes the model as its first argument"),
        ("bench decode --model x", "first argument"),
        ("serve --draft-len 99", "draft_len=99 is not allowed"),
        ("generate --drafter dspark x", "dspark"),
        ("generate --temperature -1 x", "temperature=-1.0 is not allowed"),
        ("bench decode --peer other", "--peer other"),
        ("bench decode --prompts no/such.jsonl", "no/such.jsonl"),
        ("bench serve --prompts no/such.jsonl", "no/such.jsonl"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(capsys, arguments, message):
    code, out, err = run(capsys, *arguments.split())
    assert code == 2
    assert out == ""
    assert err.startswith("slipstream: ")
    assert message in err
    assert err.count("\n") == 1


def test_usage_errors_exit_with_2(capsys):
    assert run(capsys, "explain", "--no-such-flag")[0] == 2
    assert run(capsys, "no-such-command")[0] == 2


def test_help_does_not_import_torch():
    probe = (
        "import sys\n"
        "from slipstream.cli.main import main\n"
        "try:\n    main(['serve', '--help'])\n"
        "except SystemExit:\n    pass\n"
        "sys.exit(3 if 'torch' in sys.modules else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr.decode()


def test_a_reader_that_leaves_is_no_error():
    probe = "from slipstream.cli.main import main\nmain(['serve', '--help'])"
    writer = subprocess.Popen([sys.executable, "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.close()
    _, err = writer.communicate(timeout=60)
    assert b"Traceback" not in err
    assert b"BrokenPipeError" not in err


def test_ctrl_c_while_the_commands_are_loaded_prints_nothing():
    """The finder stands for a signal that arrives in the middle of an import."""
    probe = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'slipstream.cli.program': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from slipstream.cli.main import main\n"
        "main(['serve'])"
    )
    done = subprocess.run([sys.executable, "-c", probe], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
