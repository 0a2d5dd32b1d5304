"""The run on record is the one whose files ship, and documents quote its samples as they came out."""

from __future__ import annotations

import hashlib
import re
import tomllib

import pytest

from slipstream.demo import demo_path
from support.project import ROOT

DEMO = demo_path().parent
RUN = ROOT / "recipes" / "demo" / "runs" / "second"
PROVENANCE = tomllib.loads((RUN / "provenance.toml").read_text(encoding="utf-8"))
STALE = "run recipes/demo/describe.py"


def block(path: str, name: str) -> str:
    """Return what stands between the markers of a block in a document."""
    found = re.findall(rf"<!-- {name}: [^\n]*-->\n(.*?)\n<!-- end of {name} -->", (ROOT / path).read_text(), re.S)
    assert len(found) == 1, f"{path} has {len(found)} blocks {name!r}"
    return found[0].strip()


@pytest.mark.parametrize("name", sorted(PROVENANCE["shipped"]))
def test_the_sums_of_shipped_files_are_those_on_record(name: str) -> None:
    assert hashlib.sha256((DEMO / name).read_bytes()).hexdigest() == PROVENANCE["shipped"][name], STALE


def test_weights_and_prompts_are_on_record() -> None:
    weights = {file.relative_to(DEMO).as_posix() for file in DEMO.rglob("*.safetensors")}
    assert PROVENANCE["shipped"].keys() >= {*weights, "prompts.jsonl", "checkpoint/tokenizer.json"}


def test_the_card_quotes_every_sample() -> None:
    samples = (RUN / "samples.txt").read_text(encoding="utf-8").strip()
    assert block("src/slipstream/demo/checkpoint/README.md", "samples") == f"```text\n{samples}\n```", STALE


def test_the_readme_shows_all_samples_in_their_order() -> None:
    answers = re.findall(r"^answer: (.*)$", (RUN / "samples.txt").read_text(encoding="utf-8"), re.M)
    rows = block("README.md", "samples").splitlines()[2:]
    assert len(rows) == len(answers) == 20
    plain = [one for one in zip(rows, answers, strict=True) if "]<]" not in one[1] and not one[1].endswith("step.")]
    assert len(plain) > 12
    for row, answer in plain:
        assert answer.rpartition("</mm:think>")[2][-60:] in row.replace("\\", ""), STALE


def test_acceptance_is_the_same_wherever_it_is_quoted() -> None:
    tables = [block(path, "acceptance") for path in ("src/slipstream/demo/eagle3/README.md", "docs/log.md")]
    assert tables[0] == tables[1], STALE
    assert f"| {PROVENANCE['acceptance']['all']:.2f} |" in tables[0].splitlines()[-1], STALE
