"""The sub-commands of the `slipstream` program. Not here: error lines and exit codes (main)."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.base.version import VERSION
from slipstream.cli import doctor, evaluate, explain, generate, quantize, serve, train_drafter
from slipstream.cli.bench import app as bench
from slipstream.cli.chat import command as chat


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"slipstream {VERSION}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """Return the program with its sub-commands."""
    app = typer.Typer(
        name="slipstream",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )

    @app.callback()
    def top(
        version: Annotated[
            bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        """Low-latency inference for the MiniMax-M3 family."""
        del version

    app.command("serve")(serve.serve)
    app.command("generate")(generate.generate)
    app.command("chat")(chat.chat)
    app.command("explain")(explain.explain)
    app.command("doctor")(doctor.doctor)
    app.command("evaluate")(evaluate.evaluate)
    app.command("quantize")(quantize.quantize)
    app.command("train-drafter")(train_drafter.train_drafter)
    app.add_typer(bench.build_app(), name="bench")
    return app
