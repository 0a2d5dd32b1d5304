"""Slipstream: low-latency inference for the MiniMax-M3 family.

The public names are `LLM`, `AsyncLLM`, `SamplingParams`, `GrammarSpec`, `EngineConfig` and `errors`. They are loaded
when first used, so that `import slipstream` costs nothing and never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from slipstream.base.version import VERSION

if TYPE_CHECKING:
    from slipstream.base import errors
    from slipstream.config.schema import EngineConfig
    from slipstream.frontend.async_llm import AsyncLLM
    from slipstream.frontend.llm import LLM
    from slipstream.wire.grammar import GrammarSpec
    from slipstream.wire.sampling_params import SamplingParams

__version__ = VERSION
__all__ = ["LLM", "AsyncLLM", "EngineConfig", "GrammarSpec", "SamplingParams", "__version__", "errors"]

_HOMES = {
    "LLM": "slipstream.frontend.llm",
    "AsyncLLM": "slipstream.frontend.async_llm",
    "EngineConfig": "slipstream.config.schema",
    "GrammarSpec": "slipstream.wire.grammar",
    "SamplingParams": "slipstream.wire.sampling_params",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("slipstream.base.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
