"""Targets whose weights are drawn on the device itself: real widths without a file of many gigabytes.

The folder holds configuration and tokenizer only. One set of weights serves engines of every option, and other devices
and dtypes get the same values, so a test can compare what runs on them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import tokenizers
import torch

from slipstream import LLM
from slipstream.config.hardware import Hardware, probe_hardware
from slipstream.config.options import read_options
from slipstream.config.resolve import resolve
from slipstream.config.schema import EngineConfig
from slipstream.engine.assemble import assemble
from slipstream.engine.inline import InlineEngine
from slipstream.engine.ranks import RankChoices
from slipstream.frontend.processor import TextParts
from slipstream.models.interface import TargetModel
from slipstream.models.m3.model import M3Model, build_m3
from slipstream.models.m3.weights import load_m3
from slipstream.parallel.group import TensorParallelGroup, one_rank
from slipstream.runner.build import BuiltRunner, make_runner
from slipstream.speculation.registry import build_drafter
from slipstream.wire.messages import Progress
from support.tiny_checkpoints import write_tiny_config
from support.tiny_text import backend_json, write_tiny_text

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_GAINS = {"w13": 3.0, "gate_up_proj": 3.0, "w2": 0.15, "down_proj": 0.15, "lm_head": 3.5}
"""Of a product's output, for inputs of unit size, by a part of the parameter's name; as tools/make_checkpoint.py."""


class RandomTarget:
    """A target of a geometry, and engines over it.

    Args:
        folder: empty; gets config.json and the text files, no weights.
        device: where the weights are drawn; an engine on another device gets copies.
        seed: of the weights.
        geometry: fields of tools/make_checkpoint.py's Geometry.
    """

    def __init__(self, folder: Path, *, device: str, seed: int = 0, **geometry: Any) -> None:
        vocab_size = tokenizers.Tokenizer.from_str(backend_json()).get_vocab_size()
        write_tiny_config(folder, vocab_size=geometry.pop("vocab_size", vocab_size), **geometry)
        write_tiny_text(folder)
        self.folder = folder
        self.geometry = geometry
        self._device = device
        self._seed = seed
        # Measured once: later engines share the weights, which must not be counted again.
        self._hardware: Hardware = probe_hardware()
        self._models: dict[tuple[str, str], M3Model] = {}

    def llm(self, **options: Any) -> LLM:
        """Return an engine over the weights, warmed up; options as of `LLM`."""
        asked = {"model": str(self.folder), "device": self._device, "drafter": "none", **options}
        config = resolve(read_options(asked), self._hardware)
        core, facts = assemble(config, _ignore, RankChoices(build=self._build))
        return LLM.over(InlineEngine(core, facts), TextParts.load(self.folder))

    def forget(self) -> None:
        """Free the weights."""
        self._models.clear()

    def _build(
        self, config: EngineConfig, on_progress: Callable[[Progress], None], group: TensorParallelGroup
    ) -> BuiltRunner:
        del on_progress
        model = self.model(config)
        drafter = build_drafter(
            config.speculation,
            model,
            group=group,
            dtype=_DTYPES[config.model.dtype],
            device=config.model.device,
            max_model_len=config.scheduler.max_model_len,
        )
        return make_runner(config, model, drafter, group)

    def model(self, config: EngineConfig) -> TargetModel:
        """Return the network for a configuration; the first one's weights are drawn, in bfloat16 values."""
        place = (config.model.device, config.model.dtype)
        if place not in self._models:
            model = build_m3(
                config.model.target, dtype=_DTYPES[config.model.dtype], device=config.model.device, group=one_rank()
            )
            if self._models:
                _copy(next(iter(self._models.values())), model)
            else:
                draw_weights(model, self._seed)
            self._models[place] = model
        return self._models[place]


def load_on(config: EngineConfig, device: str, *, graphs: bool) -> tuple[EngineConfig, M3Model]:
    """Return a configuration moved to a device, and the network of its checkpoint there, with the taps of its head.

    Args:
        config: of any device.
        device: cpu or cuda.
        graphs: whether its engine captures graphs.
    """
    moved = msgspec.structs.replace(
        config, model=msgspec.structs.replace(config.model, device=device), cuda_graphs=graphs
    )
    head = config.speculation.eagle3
    model = build_m3(
        config.model.target,
        dtype=_DTYPES[config.model.dtype],
        device=device,
        group=one_rank(),
        aux_layer_ids=() if head is None else head.aux_layer_ids,
    )
    load_m3(model, Path(config.model.path))
    return moved, model


@torch.no_grad()
def draw_weights(model: torch.nn.Module, seed: int) -> None:
    """Fill every parameter where it lies; values fit bfloat16, so that a copy in either dtype is exact."""
    first = next(model.parameters())
    generator = torch.Generator(device=first.device).manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            shift = 0.3 if name.endswith("qk_norm.weight") else 0.0
            parameter.uniform_(-0.6 + shift, 0.6 + shift, generator=generator)
        elif name.endswith("router.bias"):
            parameter.uniform_(-0.3, 0.3, generator=generator)
        else:
            gain = next((gain for part, gain in _GAINS.items() if part in name), 1.0)
            spread = 1.0 if name.startswith("embed_tokens") else gain * parameter.shape[-1] ** -0.5
            # Matrix by matrix: a whole layer of experts may have more elements than a 32-bit count.
            for matrix in parameter if parameter.dim() == 3 else (parameter,):
                matrix.normal_(0.0, spread, generator=generator)
        if parameter.dtype is torch.float32 and "router" not in name:
            parameter.copy_(parameter.bfloat16())


@torch.no_grad()
def _copy(source: torch.nn.Module, target: torch.nn.Module) -> None:
    values = dict(source.named_parameters())
    for name, parameter in target.named_parameters():
        parameter.copy_(values[name])


def _ignore(progress: Progress) -> None:
    del progress
