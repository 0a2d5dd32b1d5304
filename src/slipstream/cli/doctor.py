"""`slipstream doctor`: what is installed, what the machine is, and whether the bundled model works on it.

The first thing a report of a fault should contain.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, Literal

import msgspec
import typer

from slipstream.base.errors import SlipstreamError
from slipstream.base.switches import read_switches
from slipstream.base.version import VERSION
from slipstream.cli.console import format_bytes
from slipstream.cli.settings import settle
from slipstream.config.hardware import probe_hardware
from slipstream.config.options import Options
from slipstream.harness.provenance import find_version, read_processor
from slipstream.harness.stats import acceptance_length
from slipstream.wire.sampling_params import SamplingParams

Status = Literal["pass", "fail", "note"]

REQUIRED = (
    "torch", "numpy", "tokenizers", "jinja2", "safetensors", "fastapi", "uvicorn", "uvloop", "httptools", "pydantic",
    "msgspec", "zmq", "prometheus_client", "typer", "rich", "httpx",
)  # fmt: skip
DISTRIBUTION_OF = {"zmq": "pyzmq", "prometheus_client": "prometheus-client"}
OPTIONAL = {"transformers": "the peer of `slipstream bench decode --peer transformers`"}
SELF_TEST_MODEL = "demo"
SELF_TEST_DRAFTERS = ("none", "eagle3", "ngram")
SELF_TEST_MESSAGE = [{"role": "user", "content": "Write a Python function that adds two numbers."}]
SELF_TEST_TOKENS = 48


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report; a `note` is neither good nor bad."""

    name: str
    status: Status
    detail: str


KERNEL_CASES = 4
"""Named cases of every operation that are run: each compiles anew. All of them are for tests and receipts."""


def doctor(
    skip_model: Annotated[bool, typer.Option("--skip-model", help="Do not load the bundled model.")] = False,
    drafters: Annotated[
        list[str] | None, typer.Option("--drafter", metavar="NAME", help="Drafters to try; may be repeated.")
    ] = None,
) -> None:
    """Check this installation; the exit code is 1 when a check fails."""
    checks = [run_check(name, check) for name, check in environment_checks()]
    if not skip_model:
        checks += model_checks(tuple(drafters or SELF_TEST_DRAFTERS))
    typer.echo(format_checks(checks))
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


def format_checks(checks: Sequence[Check]) -> str:
    """Return the table and a line of counts."""
    marks = {"pass": "ok", "fail": "FAIL", "note": "-"}
    width = max(len(check.name) for check in checks)
    lines = [f"{marks[check.status]:<4}  {check.name:<{width}}  {check.detail}".rstrip() for check in checks]
    num_failed = sum(check.status == "fail" for check in checks)
    num_passed = sum(check.status == "pass" for check in checks)
    return "\n".join([*lines, "", f"{num_passed} checks passed, {num_failed} failed"])


def run_check(name: str, check: Callable[[], tuple[Status, str]]) -> Check:
    """Run one check; any exception is a failure with its message."""
    try:
        status, detail = check()
    except SlipstreamError as error:
        return Check(name=name, status="fail", detail=str(error))
    except Exception as error:  # noqa: BLE001 - a broken installation raises anything
        return Check(name=name, status="fail", detail=f"{type(error).__name__}: {error}")
    return Check(name=name, status=status, detail=detail)


def environment_checks() -> list[tuple[str, Callable[[], tuple[Status, str]]]]:
    """Return the checks that load no model."""
    return [
        ("slipstream", lambda: ("pass", VERSION)),
        ("python", _check_python),
        ("machine", _check_machine),
        ("switches", _check_switches),
        ("packages", _check_packages),
        ("torch", _check_torch),
        ("kernels", _check_kernels),
        *((name, lambda name=name, use=use: _note_optional(name, use)) for name, use in OPTIONAL.items()),
        ("configuration", _check_configuration),
    ]


def _check_python() -> tuple[Status, str]:
    is_good = (3, 11) <= sys.version_info[:2] <= (3, 12)
    return ("pass" if is_good else "fail"), f"{platform.python_version()}; 3.11 and 3.12 are allowed, 3.11 was tested"


def _check_machine() -> tuple[Status, str]:
    hardware = probe_hardware()
    memory = f"{format_bytes(hardware.available_memory_bytes)} of {format_bytes(hardware.total_memory_bytes)} free"
    devices = f", {len(hardware.cuda_devices)} CUDA devices" if hardware.cuda_devices else ", no CUDA device"
    return (
        "note",
        f"{platform.system()} {platform.machine()}, {read_processor()}, {hardware.num_cpus} cores, {memory}{devices}",
    )


def _check_switches() -> tuple[Status, str]:
    given = sorted(read_switches(os.environ).given)
    return "pass", f"set: {', '.join(given)}" if given else "none set"


def _check_packages() -> tuple[Status, str]:
    missing = []
    for name in REQUIRED:
        try:
            import_module(name)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    if missing:
        return "fail", f"cannot import {', '.join(missing)}: run make setup"
    shown = ("numpy", "tokenizers", "safetensors", "fastapi", "pydantic", "msgspec", "zmq")
    return "pass", ", ".join(f"{name} {find_version(DISTRIBUTION_OF.get(name, name))}" for name in shown)


def _check_torch() -> tuple[Status, str]:
    torch = import_module("torch")
    version = str(torch.__version__)
    is_good = (2, 11) <= tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < (2, 14)
    return ("pass" if is_good else "fail"), (
        f"{version}, {torch.get_num_threads()} threads; 2.11 to 2.13 are allowed; tested: 2.13.0 on a CPU, 2.11 on CUDA"
    )


def _check_kernels() -> tuple[Status, str]:
    devices = probe_hardware().cuda_devices
    if not devices:
        return "note", "no CUDA device: kernels not checked"
    if not import_module("torch").cuda.is_available():
        return "note", f"this torch does not see {devices[0]}: kernels not checked"
    # Not before: kernels and their cases need torch, without which the other checks still have something to say.
    from slipstream.kernels.self_check import check_kernels

    started = time.perf_counter()
    found = check_kernels("cuda", max_cases=KERNEL_CASES)
    seconds = time.perf_counter() - started
    if found.faults:
        return "fail", f"{len(found.faults)} of {found.num_operations} operations: {'; '.join(found.faults)}"
    return "pass", (
        f"{found.num_operations} operations on {devices[0]} equal their references in {found.num_cases} cases, "
        f"within tolerances, in {seconds:.1f} s"
    )


def _note_optional(name: str, use: str) -> tuple[Status, str]:
    version = find_version(name)
    return "note", f"{version}, for {use}" if version else f"not installed; only needed for {use}"


def _check_configuration() -> tuple[Status, str]:
    config = settle(Options())
    speculation = config.speculation
    return "pass", (
        f"{config.model.name}: {config.model.device} {config.model.dtype}, drafter {speculation.drafter} x "
        f"{speculation.draft_len}, context {config.scheduler.max_model_len}, {config.cache.num_pages} pages"
    )


def model_checks(drafters: Sequence[str]) -> list[Check]:
    """Load the bundled model with each drafter and compare what it says; the first drafter is the reference."""
    checks: list[Check] = []
    reference: dict[str, tuple[int, ...]] = {}
    for drafter in drafters:
        checks.append(run_check(f"demo, drafter {drafter}", lambda drafter=drafter: _check_model(drafter, reference)))
    return checks


def _check_model(drafter: str, reference: dict[str, tuple[int, ...]]) -> tuple[Status, str]:
    from slipstream.frontend.llm import LLM

    is_first, num_tokens = not reference, 0
    started = time.perf_counter()
    with LLM(SELF_TEST_MODEL, drafter=drafter, max_num_seqs=2) as llm:
        loaded = time.perf_counter()
        details = []
        for name, params in _self_test_params().items():
            answer = llm.chat(SELF_TEST_MESSAGE, params)[0]
            problem = _compare(name, answer.token_ids, reference)
            if problem:
                return "fail", problem
            details.append(_describe_answer(name, answer))
            num_tokens += len(answer.token_ids)
    seconds = time.perf_counter() - loaded
    agreement = "the others are compared with this" if is_first else "equal tokens: yes"
    return "pass", (
        f"loaded in {loaded - started:.1f} s, {', '.join(details)}, {num_tokens / seconds:.0f} tokens/s, {agreement}"
    )


def _self_test_params() -> dict[str, SamplingParams]:
    shared = {"max_tokens": SELF_TEST_TOKENS, "ignore_eos": True}
    return {
        "greedy": SamplingParams(temperature=0.0, **shared),
        "sampled": SamplingParams(temperature=0.8, top_p=0.95, seed=7, **shared),
    }


def _compare(name: str, token_ids: tuple[int, ...], reference: dict[str, tuple[int, ...]]) -> str | None:
    """Return what is wrong with an answer, or None; the first answer of a name becomes its reference."""
    if len(token_ids) != SELF_TEST_TOKENS:
        return f"{name}: {len(token_ids)} tokens came back, {SELF_TEST_TOKENS} were asked for"
    expected = reference.setdefault(name, token_ids)
    if token_ids != expected:
        place = next(i for i, pair in enumerate(zip(token_ids, expected, strict=True)) if pair[0] != pair[1])
        return f"equal tokens: no; {name} differs from the first drafter's answer at token {place}"
    return None


def _describe_answer(name: str, answer: Any) -> str:
    length = acceptance_length(answer.num_verify_steps, answer.num_emitted)
    if length is None or answer.num_draft_tokens == 0:
        return f"{name} {len(answer.token_ids)} tokens"
    return f"{name} {len(answer.token_ids)} tokens at acceptance length {length:.2f}"
