"""Receipts of the Triton kernels: what a GPU said of every named case, and whether the files are still the same.

Usage:
    certify.py --run       on a GPU: run every case, write docs/receipts/sm_90/<operation>.toml
    certify.py             anywhere: write docs/receipts/index.md, which says valid, stale or missing per operation

A receipt is valid as long as the operation's files have the digests in it. A test compares the index with the files.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import inspect
import platform
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from slipstream.kernels.registry import IMPLEMENTATIONS  # noqa: E402

KERNELS = ROOT / "src" / "slipstream" / "kernels"
RECEIPTS = ROOT / "docs" / "receipts"
ARCHITECTURE = "sm_90"
SHARED = ("case.py",)
ATTENTION = ("attention/triton_parts.py",)
EXACT_MATH = ("sampling/exact_math.py", "sampling/triton_math.py", "sampling/gumbel_noise/triton_impl.py")
PACKED = tuple(f"moe/experts_nvfp4/{name}.py" for name in ("layout", "triton_kernels", "triton_parts"))
GATED = ("moe/swiglu_oai/triton_impl.py",)
MORE = {
    "attention/choose_blocks": ("attention/index_score/triton_impl.py", "attention/select_blocks/triton_impl.py"),
    "attention/dense_attend": ATTENTION,
    "attention/sparse_attend": ATTENTION,
    "cache/place_heads": ("cache/write_kv/triton_impl.py",),
    "linear/matmul_mxfp8": ("linear/matmul_mxfp8/layout.py", "linear/matmul_mxfp8/plan.py"),
    "moe/experts": GATED,
    "moe/experts_nvfp4": (*PACKED, *GATED),
    "moe/sum_swiglu_oai": GATED,
    "sampling/draw_tokens": EXACT_MATH[2:],
    "sampling/filter_logits": EXACT_MATH[:2],
    "sampling/verify_rejection": (*EXACT_MATH, "sampling/purposes.py"),
}
OPERATIONS = sorted(next(rule for rule in IMPLEMENTATIONS if rule.name == "triton_impl").operations or ())
MARK = "<!-- Written by tools/certify.py from the receipts; changes here are lost. -->"


def digests_of(operation: str) -> dict[str, str]:
    """Return file -> digest of what an operation is made of, and what its cases say."""
    files = [KERNELS / operation / f"{name}.py" for name in ("contract", "reference", "cases", "triton_impl")]
    files += [KERNELS / name for name in (*SHARED, *MORE.get(operation, ()))]
    return {file.relative_to(KERNELS).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files}


def receipt_file(operation: str) -> Path:
    """Return where an operation's receipt lies."""
    return RECEIPTS / ARCHITECTURE / f"{operation.replace('/', '.')}.toml"


def state_of(operation: str) -> tuple[str, dict[str, Any]]:
    """Return valid, stale or missing, and the receipt."""
    file = receipt_file(operation)
    if not file.exists():
        return "missing", {}
    receipt = tomllib.loads(file.read_text(encoding="utf-8"))
    # A receipt may name files that the operation does not depend on any more; those it does depend on must be the same.
    is_same = digests_of(operation).items() <= receipt["files"].items()
    return ("valid" if is_same else "stale"), receipt


def index_text() -> str:
    """Return the page that says which receipts hold."""
    lines = ["# Receipts", "", MARK, ""]
    lines += [
        "What one GPU said of the named cases of every operation that has a Triton kernel. *Valid*: the files are the",
        "same as then. *Stale*: a file has changed since. `tools/certify.py --run` writes receipts on a GPU.",
        "",
        "| operation | state | cases | worst error | of the tolerance | GPU | date |",
        "| --- | --- | --: | --: | --: | --- | --- |",
    ]
    for operation in OPERATIONS:
        state, receipt = state_of(operation)
        if not receipt:
            lines.append(f"| {operation} | {state} | | | | | |")
            continue
        worst = max(receipt["cases"], key=lambda case: case["share_of_tolerance"])
        lines.append(
            f"| {operation} | {state} | {len(receipt['cases'])} | {worst['worst_error']:.2g} | "
            f"{worst['share_of_tolerance']:.0%} | {receipt['machine']['gpu']} | {receipt['machine']['date']} |"
        )
    return "\n".join(lines) + "\n"


def run_cases(operation: str) -> list[dict[str, Any]]:
    """Run every case on the GPU and return its worst error; of an exact operation it is 0 or the case fails.

    Raises:
        AssertionError: a case is outside its tolerance.
    """
    import torch

    from support.kernel_cases import FAMILIES, as_tuple, cases_of, expected_of, inputs_of, reference_of
    from support.triton_cases import arguments_of, check_triton_case, run_triton

    records = []
    for case in cases_of(operation):
        check_triton_case(operation, case.name, "cuda")
        if operation.split("/")[0] in FAMILIES:
            expected = expected_of(operation, inputs_of(operation, case))
        else:
            wanted = arguments_of(operation, case.name, "cpu")
            expected = tuple(one for one in as_tuple(reference_of(operation)(*wanted.values())) if one is not None)
        results = run_triton(operation, arguments_of(operation, case.name, "cuda"))
        error = share = 0.0
        for result, want in zip((one.cpu() for one in results if one is not None), expected, strict=True):
            both = torch.isfinite(result.double()) & torch.isfinite(want.double())
            difference = (result.double() - want.double()).abs()[both]
            if difference.numel():
                allowed = case.tolerance.atol + case.tolerance.rtol * want.double().abs()[both]
                error = max(error, difference.max().item())
                share = max(share, (difference / allowed.clamp(min=1e-300)).max().item() if error else 0.0)
        records.append({"name": case.name, "worst_error": error, "share_of_tolerance": share})
    return records


def write_receipt(operation: str, records: list[dict[str, Any]]) -> None:
    """Write what a run said."""
    import torch
    import triton

    machine = {
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
    lines = [f'operation = "{operation}"', "", "[machine]"]
    lines += [f'{name} = "{value}"' for name, value in machine.items()]
    lines += ["", "[files]"] + [f'"{name}" = "{digest}"' for name, digest in digests_of(operation).items()]
    for record in records:
        lines += ["", "[[cases]]", f'name = "{record["name"]}"']
        lines += [f"{name} = {float(record[name]):.6e}" for name in ("worst_error", "share_of_tolerance")]
    file = receipt_file(operation)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Run or write the index."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("--run", action="store_true", help="run the cases on a GPU")
    options = parser.parse_args()
    if options.run:
        for number, operation in enumerate(OPERATIONS, 1):
            write_receipt(operation, run_cases(operation))
            print(f"{number} of {len(OPERATIONS)}: {operation}", flush=True)
    (RECEIPTS / "index.md").write_text(index_text(), encoding="utf-8")
    print(RECEIPTS / "index.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
