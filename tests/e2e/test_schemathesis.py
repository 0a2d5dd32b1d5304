"""Schemathesis against the server: what the OpenAPI document promises holds for requests that it makes up.

It tries every field with values at and beyond their limits, wrong types, missing and surplus fields, other methods, and
random combinations of all of them; the seed is fixed. Its hooks, with two checks of our own, are in support.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.live_server import live_server
from support.outside import run_program
from support.project import TESTS

pytestmark = pytest.mark.xdist_group("clients")

MAX_EXAMPLES = "8"
MIN_CASES = 1000


def test_the_server_keeps_what_its_document_promises(tmp_path: Path) -> None:
    with live_server("demo", "--max-num-seqs", "8") as server:
        said = run_program(
            "schemathesis",
            *("run", f"{server.base_url}/openapi.json", "--no-color", "--continue-on-failure", "--workers", "1"),
            *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", MAX_EXAMPLES, "--seed", "1"),
            *("--output-sanitize", "false", "--request-timeout", "30"),
            cwd=tmp_path,
            timeout_s=240,
            PYTHONPATH=str(TESTS),
            SCHEMATHESIS_HOOKS="support.schemathesis_hooks",
        )
        assert server.metric("vllm:num_requests_running") == 0
    num_cases = re.search(r"(\d+) generated", said)
    assert num_cases is not None, said
    assert int(num_cases[1]) >= MIN_CASES, "so few cases cannot have tried every field"
