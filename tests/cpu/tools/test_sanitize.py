"""The script that compute-sanitizer runs works without a GPU too, and says what it ran."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def sanitize():
    path = Path(__file__).resolve().parents[3] / "tools" / "sanitize.py"
    spec = importlib.util.spec_from_file_location("sanitize", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_session_answers_requests_of_every_kind_and_names_them(sanitize, capsys):
    assert sanitize.main(["--device", "cpu", "--drafter", "ngram", "--num-tokens", "2"]) == 0
    said = capsys.readouterr().out
    assert all(kind in said for kind in sanitize.wishes(2))
    assert "ngram on cpu" in said


def test_cases_of_kernels_need_a_gpu(sanitize, capsys):
    with pytest.raises(SystemExit):
        sanitize.main(["--device", "cpu", "--what", "kernels"])
    assert "--device cuda" in capsys.readouterr().err
