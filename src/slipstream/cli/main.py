"""The `slipstream` program: sub-commands, error lines, exit codes.

Exit codes: 0 success, 1 a check failed, 2 a usage or configuration error, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from slipstream.base.errors import SlipstreamError
from slipstream.base.version import VERSION
from slipstream.cli import bench, doctor, explain, generate, serve
from slipstream.cli.chat import command as chat
from slipstream.cli.console import hold_standard_streams, show_error

EXIT_ERROR = 2
EXIT_PIPE = 141


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
    app.add_typer(bench.build_app(), name="bench")
    return app


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program; every error that the project raises on purpose becomes one line and an exit code.

    Args:
        argv: arguments without the program's name; None takes the process's.
    """
    hold_standard_streams()
    try:
        build_app()(args=None if argv is None else list(argv), prog_name="slipstream")
    except SlipstreamError as error:
        show_error(str(error))
        sys.exit(EXIT_ERROR)
    except BrokenPipeError:
        # The reader of a pipe has gone. What is still buffered must not raise again at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_PIPE)
