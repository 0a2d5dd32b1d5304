from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from slipstream.base.errors import ConfigError
from slipstream.cli import doctor as module
from slipstream.cli.doctor import Check, environment_checks, format_checks, run_check
from slipstream.cli.main import main


def test_the_report_marks_failures_and_counts():
    checks = [
        Check(name="a", status="pass", detail="fine"),
        Check(name="longer", status="fail", detail="broken"),
        Check(name="b", status="note", detail="by the way"),
    ]
    lines = format_checks(checks).splitlines()
    assert lines[0].split() == ["ok", "a", "fine"]
    assert lines[1].split() == ["FAIL", "longer", "broken"]
    assert lines[-1] == "1 checks passed, 1 failed"


@pytest.mark.parametrize("error", [ConfigError("no"), ZeroDivisionError("no")])
def test_any_exception_is_a_failure_with_its_message(error):
    def check():
        raise error

    result = run_check("x", check)
    assert result.status == "fail"
    assert "no" in result.detail


def test_a_misspelt_switch_fails_its_check(monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_NO_SUCH_SWITCH", "1")
    checks = {name: run_check(name, check) for name, check in environment_checks() if name in ("switches", "python")}
    assert checks["switches"].status == "fail"
    assert "SLIPSTREAM_NO_SUCH_SWITCH" in checks["switches"].detail
    assert checks["python"].status == "pass"


def test_the_exit_code_tells_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(module, "environment_checks", lambda: [("x", lambda: ("fail", "because"))])
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", "--skip-model"])
    assert stopped.value.code == 1
    assert "because" in capsys.readouterr().out


def test_answers_must_agree_with_the_first_drafters():
    reference = {}
    answer = tuple(range(module.SELF_TEST_TOKENS))
    assert module._compare("greedy", answer, reference) is None
    assert module._compare("greedy", answer, reference) is None
    other = (*answer[:5], 99, *answer[6:])
    assert "equal tokens: no; greedy" in (module._compare("greedy", other, reference) or "")
    assert "at token 5" in (module._compare("greedy", other, reference) or "")
    assert "3 tokens came back" in (module._compare("greedy", answer[:3], reference) or "")


def test_kernels_are_checked_where_torch_sees_a_device(monkeypatch):
    check = dict(environment_checks())["kernels"]
    found = SimpleNamespace(num_operations=3, num_cases=9, faults=())
    asked = []

    def check_kernels(device_type, max_cases):
        asked.append(device_type)
        return found

    has_cuda = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    no_cuda = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    # The module that it is reached through needs torch, which this test has none of.
    monkeypatch.setitem(sys.modules, "slipstream.kernels.self_check", SimpleNamespace(check_kernels=check_kernels))
    monkeypatch.setattr(module, "probe_hardware", lambda: SimpleNamespace(cuda_devices=()))
    assert check() == ("note", "no CUDA device: kernels not checked")
    monkeypatch.setattr(module, "probe_hardware", lambda: SimpleNamespace(cuda_devices=("Big GPU",)))
    monkeypatch.setattr(module, "import_module", lambda name: no_cuda)
    assert check() == ("note", "this torch does not see Big GPU: kernels not checked")
    assert asked == []
    monkeypatch.setattr(module, "import_module", lambda name: has_cuda)
    status, detail = check()
    assert (status, asked) == ("pass", ["cuda"])
    assert detail.startswith("3 operations on Big GPU equal their references in 9 cases")
    found.faults = ("norm/x (fake), case y: it differs", "norm/z: RuntimeError: no")
    assert check() == ("fail", "2 of 3 operations: norm/x (fake), case y: it differs; norm/z: RuntimeError: no")
