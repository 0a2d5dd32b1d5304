"""The declared format of every module of a checkpoint, whatever spelling declared it.

Not here: the spellings (`read`, `declare`), and what is stored: the loader compares both and stops where they disagree
(`weights.formats.find`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from slipstream.base.errors import CheckpointError

WeightFormat = Literal["plain", "mxfp8", "nvfp4", "nvfp4-m31"]
PLAIN: Final = "plain"
MXFP8: Final = "mxfp8"
NVFP4: Final = "nvfp4"
NVFP4_M31: Final = "nvfp4-m31"
QUANTISED: tuple[WeightFormat, ...] = (MXFP8, NVFP4, NVFP4_M31)

Recipe = Literal["released", "experts"]
RECIPES: tuple[Recipe, ...] = ("released", "experts")

MXFP8_BLOCK = (1, 32)
NVFP4_GROUP = 16

# The modules that a quantised checkpoint of the family may quantise. Matched by exact name: a rule with "gate" in it
# must never catch gate_proj, nor the other way round.
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "index_q_proj", "index_k_proj")
_MLP = ("gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3")
PROJECTIONS = frozenset((*_ATTENTION, *_MLP))
_TABLES = frozenset(("lm_head", "embed_tokens"))
_PARTS_OF_FUSED = {"gate_up_proj": ("gate_proj", "up_proj")}


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """The declared format of every module.

    Args:
        method: quant_method, or none.
        where: file and field, for messages.
        default: format of projections that nothing else names.
        experts: format of routed experts that nothing else names.
        layers: format by name of module; fused modules are named by their parts.
        excluded: names of modules, or runs of them, that are kept plain; `name*` begins with it, `re:` is a regular
            expression.
        notes: what else was read, in words.
    """

    method: str = "none"
    where: str = "config.json: no quantization_config"
    default: WeightFormat = PLAIN
    experts: WeightFormat = PLAIN
    layers: Mapping[str, WeightFormat] = {}
    excluded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Return the quantised formats in use, sorted; none for a plain checkpoint."""
        used: set[WeightFormat] = {self.default, self.experts, *self.layers.values()}
        used.discard(PLAIN)
        return tuple(sorted(used))

    def declared(self, tensor: str) -> tuple[WeightFormat, ...]:
        """Return the formats in which a tensor may be stored, one for most.

        Args:
            tensor: logical name, e.g. `...self_attn.q_proj.weight`.

        Raises:
            CheckpointError: the declaration contradicts itself about this module.
        """
        module = tensor.removesuffix(".weight")
        prefix, _, last = module.rpartition(".")
        names = (module, *(f"{prefix}.{part}" for part in _PARTS_OF_FUSED.get(last, ())))
        named: set[WeightFormat] = {self.layers[name] for name in names if name in self.layers}
        is_excluded = self._is_excluded(module)
        if len(named) > 1 or (named and is_excluded):
            words = sorted(named) + ([PLAIN] if is_excluded else [])
            raise CheckpointError(f"{self.where}: {module} is declared as {' and as '.join(words)}; one is needed")
        if named:
            return tuple(named)
        if is_excluded or last not in (*PROJECTIONS, *_TABLES):
            return (PLAIN,)
        if last in _TABLES and self.default != PLAIN:
            # Most writers leave the tables out of both lists.
            return (PLAIN, self.default)
        return (self.experts if "experts" in prefix.split(".") else self.default,)

    def _is_excluded(self, module: str) -> bool:
        if not self.excluded:
            return False
        steps = module.split(".")
        runs = {".".join(steps[a:b]) for a in range(len(steps)) for b in range(a + 1, len(steps) + 1)}
        for entry in self.excluded:
            if entry.startswith("re:"):
                if re.match(entry[3:], module):
                    return True
            elif entry.endswith("*"):
                if module.startswith(entry[:-1]) or f".{entry[:-1]}" in f".{module}":
                    return True
            elif entry in runs:
                return True
        return False


NOT_QUANTIZED = Quantization()
