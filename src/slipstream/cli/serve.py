"""`slipstream serve`: the HTTP server, with progress while it loads and a request to try when it is ready."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys

import typer

from slipstream.base.log import set_up_logging
from slipstream.base.switches import API_KEY
from slipstream.cli.arguments import with_options
from slipstream.cli.console import ProgressDisplay, make_error_console
from slipstream.cli.hide_arguments import hide_arguments
from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.config.schema import EngineConfig

EXAMPLE_MESSAGE = "Nora carries 8 trays with 9 stamps each and drops 4 stamps. How many stamps does Nora still have?"


@with_options()
def serve(options: Options) -> None:
    """Serve a model over HTTP, in the dialect of the OpenAI API.

    Stops on SIGTERM or Ctrl-C after the requests in flight have ended; a second signal stops at once.
    """
    config = settle(options)
    # From here on nothing needs the key in the environment, which child processes inherit.
    os.environ.pop(API_KEY, None)
    hide_arguments(config.server.api_keys)
    set_up_logging(config.server.log_format, config.server.log_level, process="server", secrets=config.server.api_keys)
    # Imported here: other commands need no HTTP library.
    from slipstream.server.serve import serve as run_server

    display = ProgressDisplay()

    def be_ready(url: str) -> None:
        display.stop()
        say(describe_ready(config, url))

    with display:
        run_server(
            config,
            on_progress=display,
            on_listening=lambda url: make_error_console().print(f"{url} is bound, the model is loading", markup=False),
            on_ready=be_ready,
        )


def say(text: str) -> None:
    """Print a text, or go on without when nobody reads it: the server does not need its standard output."""
    try:
        typer.echo(text)
    except (OSError, ValueError):
        # What is still buffered must not fail again at the end.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe_ready(config: EngineConfig, url: str) -> str:
    """Return what the server is and a request to try."""
    speculation = config.speculation
    drafter = f"drafter {speculation.drafter}"
    if speculation.draft_len:
        drafter += f" with {speculation.draft_len} drafts per step"
    name = config.server.served_model_name
    return f"ready: {name} on {config.model.device} in {config.model.dtype}, {drafter}\n{example_request(config, url)}"


def example_request(config: EngineConfig, url: str) -> str:
    """Return a curl command that asks this server something."""
    body = {
        "model": config.server.served_model_name,
        "messages": [{"role": "user", "content": EXAMPLE_MESSAGE}],
        "temperature": 0,
        "max_tokens": 64,
    }
    words = ["curl", "-sS", f"{url}/v1/chat/completions", "-H", "Content-Type: application/json"]
    if config.server.api_keys:
        words += ["-H", "Authorization: Bearer YOUR_KEY"]
    return shlex.join([*words, "-d", json.dumps(body)])
