"""Reading `quantization_config` of config.json, and ModelOpt's hf_quant_config.json, into a `Quantization`.

Three spellings: quant_method mxfp8 (with NVFP4 routed experts by `moe_quant_algo`), modelopt (one algorithm, or
MIXED_PRECISION with a map of modules), compressed-tensors (NVFP4 groups). What is not certain is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import Fields, read_json
from slipstream.config.quantization.spec import (
    MXFP8,
    MXFP8_BLOCK,
    NOT_QUANTIZED,
    NVFP4,
    NVFP4_GROUP,
    NVFP4_M31,
    Quantization,
    WeightFormat,
)

CONFIG_FILE = "config.json"
MODELOPT_FILE = "hf_quant_config.json"
FIELD = "quantization_config"
METHODS = ("mxfp8", "modelopt", "compressed-tensors")
MIXED = "MIXED_PRECISION"
PACKED_FORMAT = "nvfp4-pack-quantized"
_OLD_FIELD = "compression_config"
_ALGORITHMS: dict[str, WeightFormat] = {"MXFP8": MXFP8, "NVFP4": NVFP4}
_CACHE_WHY = "the KV cache is held in the engine's dtype, or narrowed to FP8"
_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*(\.?\*)?")


def read_quantization(folder: Path) -> Quantization:
    """Return what a checkpoint folder declares; see `find_quantization`."""
    path = folder / CONFIG_FILE
    top = Fields(read_json(path, purpose="the model's configuration"), str(path))
    return find_quantization(top, top.section("text_config") or top, folder)


def find_quantization(top: Fields, text: Fields, folder: Path) -> Quantization:
    """Return what config.json and hf_quant_config.json declare about the weights.

    Args:
        top: config.json.
        text: its text_config, or the same object.
        folder: the checkpoint.

    Raises:
        CheckpointError: a method, an algorithm, a size or a list that is not supported, or two declarations that
            disagree; the message names the field and what is allowed.
    """
    found: list[Quantization] = []
    for fields in (top,) if text is top else (top, text):
        if fields.raw(_OLD_FIELD) is not None:
            raise fields.fail(_OLD_FIELD, "...", f"the field's present name, {FIELD}")
        section = fields.section(FIELD)
        if section is not None:
            found.append(_read(section))
    path = folder / MODELOPT_FILE
    if path.is_file():
        file = Fields(read_json(path, purpose="ModelOpt's account of quantised weights"), str(path))
        section = file.section("quantization")
        if section is None:
            raise CheckpointError(f"{path}: the field quantization is missing; copy or download the file again")
        found.append(_read_modelopt(section))
    for other in found[1:]:
        _check_same(found[0], other)
    return found[0] if found else NOT_QUANTIZED


def _read(fields: Fields) -> Quantization:
    method = fields.choice("quant_method", METHODS, why="other quantised weights are not supported yet")
    if method == "mxfp8":
        return _read_mxfp8(fields)
    return _read_modelopt(fields) if method == "modelopt" else _read_compressed(fields)


def _read_mxfp8(fields: Fields) -> Quantization:
    fields.choice("activation_scheme", ("dynamic",), "dynamic")
    if fields.has("weight_block_size") and fields.integers("weight_block_size") != MXFP8_BLOCK:
        raise fields.fail("weight_block_size", fields.raw("weight_block_size"), f"{list(MXFP8_BLOCK)}")
    fields.choice("scale_fmt", ("ue8m0", "float"), "ue8m0")
    experts = fields.choice("moe_quant_algo", ("MXFP8", "NVFP4"), "MXFP8")
    notes = _read_cache(fields)
    if experts == "NVFP4":
        fields.choice("moe_quant_format", (PACKED_FORMAT,), PACKED_FORMAT)
        fields.choice("group_size", (NVFP4_GROUP,), NVFP4_GROUP)
    lists = [fields.texts(name) for name in ("ignored_layers", "modules_to_not_convert") if fields.has(name)]
    if len({frozenset(names) for names in lists}) > 1:
        raise CheckpointError(f"{fields.where}: ignored_layers and modules_to_not_convert differ; give one")
    fields.ignore(("ignored_layers", "modules_to_not_convert", "dequantize", "fmt", "expert_dtype"))
    return Quantization(
        method="mxfp8",
        where=fields.where,
        default=MXFP8,
        experts=NVFP4_M31 if experts == "NVFP4" else MXFP8,
        excluded=_checked(fields, "ignored_layers", lists[0] if lists else ()),
        notes=notes,
    )


def _read_modelopt(fields: Fields) -> Quantization:
    fields.choice("quant_method", ("modelopt",), "modelopt")
    fields.ignore(("producer", "config_groups"))
    algorithm = fields.choice("quant_algo", (*_ALGORITHMS, MIXED), why="other algorithms are not supported yet")
    lists = [fields.texts(name) for name in ("exclude_modules", "ignore") if fields.has(name)]
    fields.ignore(("exclude_modules", "ignore"))
    excluded = _checked(fields, "exclude_modules", [name for names in lists for name in names])
    notes = _read_cache(fields)
    if algorithm != MIXED:
        form = _ALGORITHMS[algorithm]
        _check_group(fields, form)
        if fields.has("quantized_layers"):
            raise fields.fail("quantized_layers", "{...}", f"only with quant_algo {MIXED}")
        return Quantization(
            method="modelopt", where=fields.where, default=form, experts=form, excluded=excluded, notes=notes
        )
    layers: dict[str, WeightFormat] = {}
    table = fields.raw("quantized_layers")
    if not isinstance(table, dict) or not table:
        raise fields.fail("quantized_layers", table, "an object: name of a module -> {quant_algo, group_size}")
    for module, value in table.items():
        where = f"{fields.where}.quantized_layers[{module!r}]"
        if not isinstance(value, dict):
            raise CheckpointError(f"{where}={value!r} is not supported; allowed: an object with quant_algo")
        entry = Fields(value, where)
        layers[module] = _ALGORITHMS[entry.choice("quant_algo", tuple(_ALGORITHMS))]
        _check_group(entry, layers[module])
    return Quantization(method="modelopt", where=fields.where, layers=layers, excluded=excluded, notes=notes)


def _read_compressed(fields: Fields) -> Quantization:
    fields.choice("format", (PACKED_FORMAT,), why="other packings are not supported yet")
    fields.choice("quantization_status", ("compressed",), "compressed")
    if fields.raw("kv_cache_scheme") is not None:
        raise fields.fail("kv_cache_scheme", fields.raw("kv_cache_scheme"), f"null; {_CACHE_WHY}")
    for name in ("sparsity_config", "transform_config"):
        if fields.raw(name):
            raise fields.fail(name, fields.raw(name), "an empty object or null")
    fields.ignore(("global_compression_ratio", "version"))
    groups = fields.raw("config_groups")
    if not isinstance(groups, dict) or len(groups) != 1:
        raise fields.fail("config_groups", groups, "an object with one group of NVFP4 weights")
    group = Fields(next(iter(groups.values())), f"{fields.where}.config_groups.{next(iter(groups))}")
    group.choice("format", (PACKED_FORMAT,), PACKED_FORMAT)
    group.ignore(("input_activations", "output_activations"))
    weights = group.section("weights")
    if weights is None:
        raise CheckpointError(f"{group.where}: the field weights is missing")
    weights.choice("num_bits", (4,))
    weights.choice("type", ("float",))
    weights.choice("group_size", (NVFP4_GROUP,))
    weights.choice("symmetric", (True,), True)
    weights.choice("dynamic", (False,), False)
    targets = group.texts("targets")
    if targets != ("Linear",):
        raise group.fail("targets", list(targets), '["Linear"]; name what is left out in ignore')
    excluded = _checked(fields, "ignore", fields.texts("ignore", ()), with_expressions=True)
    return Quantization(
        method="compressed-tensors", where=fields.where, default=NVFP4_M31, experts=NVFP4_M31, excluded=excluded
    )


def _check_group(fields: Fields, form: WeightFormat) -> None:
    size = NVFP4_GROUP if form == NVFP4 else MXFP8_BLOCK[1]
    fields.choice("group_size", (size,), size)


def _read_cache(fields: Fields) -> tuple[str, ...]:
    """Check what is declared about the cache and activations, which weights do not depend on."""
    notes = []
    for name, allowed in (
        ("kv_cache_quant_algo", ("FP8",)),
        ("attention_quant_algo", ("FP8",)),
        ("index_k_quant_type", ("fp8", "nvfp4")),
    ):
        if fields.has(name):
            notes.append(f"{name} {fields.choice(name, allowed, why=_CACHE_WHY)} is a permission, not a need")
        fields.ignore((name,))
    return tuple(notes)


def _checked(fields: Fields, name: str, entries: Iterable[str], *, with_expressions: bool = False) -> tuple[str, ...]:
    """Return a list of modules, each entry in a spelling whose meaning is certain."""
    allowed = "names of modules such as lm_head or block_sparse_moe.gate, or such a name with * at its end"
    for entry in entries:
        if with_expressions and entry.startswith("re:"):
            try:
                re.compile(entry[3:])
            except re.error as error:
                raise fields.fail(name, entry, f"a regular expression after re: ({error})") from None
        elif not _NAME.fullmatch(entry):
            raise fields.fail(name, entry, allowed + (", or re: and a regular expression" if with_expressions else ""))
    return tuple(sorted(set(entries)))


def _check_same(first: Quantization, other: Quantization) -> None:
    for name in ("default", "experts", "layers", "excluded"):
        one, two = getattr(first, name), getattr(other, name)
        if one != two:
            raise CheckpointError(
                f"{first.where} and {other.where} disagree about {name}: {_brief(one, two)}; they are of different "
                "versions: copy or download both again"
            )


def _brief(one: Any, two: Any) -> str:
    if isinstance(one, Mapping):
        name = sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))[0]
        return f"{name} is {one.get(name, 'not listed')} and {two.get(name, 'not listed')}"
    if isinstance(one, tuple):
        return f"{sorted(set(one) ^ set(two))[0]} is in one of them only"
    return f"{one} and {two}"
