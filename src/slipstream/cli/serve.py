"""`slipstream serve`: the HTTP server, with progress while it loads and a request to try when it is ready."""

from __future__ import annotations

import json
import logging
import os
import shlex

import typer

from slipstream.base.switches import read_switches
from slipstream.cli.arguments import with_options
from slipstream.cli.console import ProgressDisplay, make_error_console
from slipstream.cli.settings import settle
from slipstream.config.options import Options
from slipstream.config.schema import EngineConfig

EXAMPLE_MESSAGE = "Write a haiku about the sea."
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@with_options()
def serve(options: Options) -> None:
    """Serve a model over HTTP, in the dialect of the OpenAI API.

    Stops on SIGTERM or Ctrl-C after the requests in flight have ended; a second signal stops at once.
    """
    config = settle(options)
    logging.basicConfig(level=read_switches(os.environ).log_level.upper(), format=LOG_FORMAT)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # Imported here: other commands need no HTTP library.
    from slipstream.server.serve import serve as run_server

    display = ProgressDisplay()

    def be_ready(url: str) -> None:
        display.stop()
        typer.echo(describe_ready(config, url))

    with display:
        run_server(
            config,
            on_progress=display,
            on_listening=lambda url: make_error_console().print(f"{url} is bound, the model is loading", markup=False),
            on_ready=be_ready,
        )


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
        "max_tokens": 64,
    }
    words = ["curl", "-sS", f"{url}/v1/chat/completions", "-H", "Content-Type: application/json"]
    if config.server.api_key is not None:
        words += ["-H", "Authorization: Bearer YOUR_KEY"]
    return shlex.join([*words, "-d", json.dumps(body)])
