"""`slipstream quantize`: a quantised copy of a checkpoint, in spellings that other engines read too.

And back: `--format bfloat16` makes a plain copy of a quantised one.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.base.errors import ConfigError
from slipstream.cli.console import ProgressDisplay, format_bytes, make_error_console, orderly_end
from slipstream.config.quantization.spec import QUANTISED, RECIPES
from slipstream.config.resolve import DEMO
from slipstream.demo import demo_path
from slipstream.wire.messages import Progress

_GIB = 1 << 30
_BFLOAT16 = "bfloat16"
_FORMATS = (*QUANTISED, _BFLOAT16)


def quantize(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Checkpoint: a folder, or demo.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="Folder to write; it appears when it is complete.")],
    wanted: Annotated[
        str,
        typer.Option("--format", metavar="|".join(_FORMATS), help="Format of the routed experts; bfloat16 undoes."),
    ] = "mxfp8",
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe",
            metavar="|".join(RECIPES),
            help="released: the decoder's other projections in MXFP8, as in released checkpoints; experts: only these.",
        ),
    ] = "released",
    shard_gib: Annotated[
        float, typer.Option("--shard-gib", metavar="X", help="Largest file of weights; as much memory is needed.")
    ] = 4.0,
    force: Annotated[bool, typer.Option("--force", help="Replace a checkpoint at DST.")] = False,
) -> None:
    """Store a checkpoint's weights in fewer bits. Router, embedding, head, norms and drafters stay as they are."""
    if wanted not in _FORMATS:
        raise ConfigError(f"--format {wanted}: allowed: {', '.join(_FORMATS)}")
    if recipe not in RECIPES:
        raise ConfigError(f"--recipe {recipe}: allowed: {', '.join(RECIPES)}")
    if wanted == _BFLOAT16 and recipe != RECIPES[0]:
        raise ConfigError(f"--recipe {recipe}: {_BFLOAT16} undoes whatever was quantised; leave --recipe out")
    if not 0 < shard_gib <= 1024:
        raise ConfigError(f"--shard-gib {shard_gib:g}: give a number above 0, at most 1024")
    folder = demo_path() if source == DEMO else Path(source).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"SRC={source}: no such folder, or a file; give a folder with config.json and safetensors, or demo"
        )
    with orderly_end(), ProgressDisplay() as display:

        def show(done: int, total: int) -> None:
            display(Progress(stage="tensors", done=done, total=total))

        place = (folder, target.expanduser())
        common: dict[str, Any] = {
            "is_forced": force,
            "max_shard_bytes": int(shard_gib * _GIB),
            "on_progress": show,
        }
        # By name: the other commands start without torch.
        if wanted == _BFLOAT16:
            report = importlib.import_module("slipstream.weights.dequantise").dequantise_checkpoint(*place, **common)
        else:
            library = importlib.import_module("slipstream.weights.quantise")
            report = library.quantise_checkpoint(*place, wanted, recipe=recipe, **common)
    counts = ", ".join(f"{count} {form}" for form, count in report.counts.items())
    make_error_console().print(f"{counts} tensors; {folder.name} -> {report.folder}", markup=False)
    ratio = report.num_bytes / report.num_bytes_before
    typer.echo(f"{format_bytes(report.num_bytes_before)} -> {format_bytes(report.num_bytes)} ({ratio:.1%})")
