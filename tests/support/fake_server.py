"""`python -m support.fake_server CONFIG_JSON`: the real server over a fake engine process, for tests of its life."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from support.fake_engine import FakeConfig

from slipstream.base.errors import SlipstreamError
from slipstream.engine.client import ProcessClient
from slipstream.engine.spawn import start_process
from slipstream.frontend.async_llm import AsyncLLM
from slipstream.frontend.processor import TextParts
from slipstream.server.serve import serve


def launch(config: FakeConfig, **options: Any) -> AsyncLLM:
    """Start the fake engine process behind a real front end."""
    process = start_process(config, module="support.fake_engine")
    print("engine", process.pid, flush=True)
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
            on_listening=lambda url: print("listening", url, flush=True),
            on_ready=lambda url: print("ready", url, flush=True),
            on_progress=lambda progress: print("progress", progress.stage, flush=True),
        )
    except SlipstreamError as error:
        print("error", type(error).__name__, error, flush=True)
        return 2
    print("ended", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
