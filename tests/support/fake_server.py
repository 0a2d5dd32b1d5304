"""`python -m support.fake_server CONFIG_JSON`: the real server over a fake engine process, for tests of its life."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from slipstream.base.errors import SlipstreamError
from slipstream.engine.client import ProcessClient
from slipstream.engine.spawn import start_process
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.processor import TextParts
from slipstream.server.serve import serve
from support.fake_engine import FakeConfig


def say(*words: object) -> None:
    """Print one line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def launch(config: FakeConfig, **options: Any) -> AsyncLLM:
    """Start the fake engine process behind a real front end."""
    process = start_process(config, module="support.fake_engine")
    say("engine", process.pid)
    return AsyncLLM(
        ProcessClient(process),
        lambda: TextParts.load(config.model.path),
        model_name=config.server.served_model_name,
        max_queue=config.server.max_queue,
        **options,
    )


def main() -> int:
    """Serve; print what happens, a line each."""
    config = msgspec.json.decode(sys.argv[1], type=FakeConfig)
    try:
        serve(
            config,
            launch=launch,
            on_listening=lambda url: say("listening", url),
            on_ready=lambda url: say("ready", url),
            on_progress=lambda progress: say("progress", progress.stage),
        )
    except SlipstreamError as error:
        say("error", type(error).__name__, error)
        return 2
    say("ended")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
