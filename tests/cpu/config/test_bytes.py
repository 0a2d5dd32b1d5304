"""The account that planner and `explain` use is what the runner allocates, to the byte."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from slipstream.base.errors import CapacityError
from slipstream.cache.physical.pools import PagePools
from slipstream.cache.physical.tables import PageTables
from slipstream.config.bytes import drafter_weight_bytes, rotary_table_bytes, target_weight_bytes
from slipstream.config.checkpoint import read_target
from slipstream.config.drafter import read_eagle3
from slipstream.config.explain import fixed_bytes_of, geometry_of
from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.models.eagle3.weights import load_eagle3
from slipstream.models.m3.model import build_m3
from slipstream.parallel.group import one_rank
from slipstream.runner.build import build_runner, make_runner
from slipstream.speculation.none import NoDrafter
from support.layer_parts import run_ranks
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3

HARDWARE = Hardware(num_cpus=1, total_memory_bytes=2**34, available_memory_bytes=2**33)


@pytest.mark.parametrize(
    "options",
    [{"drafter": "none"}, {"drafter": "ngram"}, {"drafter": "eagle3"}, {"draft_len": 0}, {"dtype": "bfloat16"}],
    ids=str,
)
def test_allocated_bytes_are_the_explained_ones(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = make_tiny_checkpoint(tmp_path / "model")
    make_tiny_eagle3(folder / "eagle3", read_target(folder), num_kv_heads=4)
    config = resolve(Options(model=str(folder), max_num_seqs=2, max_model_len=64, threads=1, **options), HARDWARE)
    geometry = geometry_of(config)
    built = build_runner(config, lambda _: None)
    assert built.geometry == geometry
    assert PagePools(geometry, torch.device("cpu")).num_bytes == geometry.total_bytes


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("drafter", ["none", "eagle3"])
def test_each_rank_allocates_what_is_explained(tmp_path: Path, num_kv_heads: int, drafter: str) -> None:
    folder = make_tiny_checkpoint(tmp_path / "model", num_kv_heads=num_kv_heads)
    make_tiny_eagle3(folder / "eagle3", read_target(folder), num_kv_heads=1)
    options = Options(model=str(folder), tp=2, drafter=drafter, max_num_seqs=2, max_model_len=64, threads=1)
    config = resolve(options, HARDWARE)
    geometry = geometry_of(config)
    assert geometry.pool("target_k").page_shape[1] == max(1, num_kv_heads // 2)
    for built in run_ranks(2, lambda group: build_runner(config, lambda _: None, group)):
        assert built.geometry == geometry


@pytest.mark.parametrize("drafter", ["none", "ngram", "eagle3"])
def test_rows_and_tables_are_counted_to_the_byte(tmp_path: Path, drafter: str) -> None:
    folder = make_tiny_checkpoint(tmp_path / "model")
    make_tiny_eagle3(folder / "eagle3", read_target(folder), num_kv_heads=4)
    options = Options(model=str(folder), max_num_seqs=3, max_model_len=70, threads=1, drafter=drafter)
    config = resolve(options, HARDWARE)
    fixed = fixed_bytes_of(config)
    built = build_runner(config, lambda _: None)
    state = [getattr(built.rows, field.name) for field in dataclasses.fields(built.rows)]
    assert sum(tensor.nbytes for tensor in state) == fixed.rows
    tables = PageTables(built.geometry.groups, 3, -(-70 // config.cache.page_size), torch.device("cpu"))
    assert sum(tables.table(group).nbytes for group in tables.groups) == fixed.page_tables
    assert (fixed.drafter_weights > 0) == (drafter == "eagle3")
    edits = built.runner._parts.edits
    assert not edits.is_allocated
    edits.allocate()
    assert edits.num_bytes == fixed.edit_rows


@pytest.mark.parametrize("tp_size", [1, 2])
@pytest.mark.parametrize("norms", [{}, {"fc_norm": True}, {"norm_before_fc": True, "num_kv_heads": 4}], ids=str)
def test_the_weights_of_a_head_are_counted_to_the_byte(tmp_path: Path, tp_size: int, norms: dict[str, Any]) -> None:
    folder = make_tiny_checkpoint(tmp_path / "model")
    target = read_target(folder)
    head = make_tiny_eagle3(folder / "eagle3", target, draft_vocab_size=64, **norms)
    spec = read_eagle3(head, target).spec

    def count(group: Any) -> tuple[int, int]:
        model = build_m3(target, dtype=torch.bfloat16, device="cpu", group=group, max_positions=50)
        for parameter in model.parameters():
            parameter.data.zero_()  # the head's tables differ from the target's, so it keeps its own
        drafter, _ = load_eagle3(head, spec, model, group=group, dtype=torch.bfloat16, device="cpu", max_positions=50)
        assert drafter.target_ids is not None
        weights = sum(parameter.nbytes for parameter in drafter.parameters()) + drafter.target_ids.nbytes
        return weights, model.rope_table.nbytes + drafter.rope_table.nbytes

    expected = (drafter_weight_bytes(spec, "bfloat16", tp_size), rotary_table_bytes(target, spec, 50))
    counts = [count(one_rank())] if tp_size == 1 else run_ranks(tp_size, count)
    assert counts == [expected] * tp_size


def test_rows_that_cannot_be_allocated_are_refused_with_their_bytes(tmp_path: Path) -> None:
    folder = make_tiny_checkpoint(tmp_path / "model")
    config = resolve(Options(model=str(folder), max_num_seqs=2, max_model_len=64, threads=1), HARDWARE)
    model = build_m3(config.model.target, dtype=torch.float32, device="cpu", group=one_rank(), max_positions=64)
    longest = 2**46  # tokens; no address space holds their history
    vast = msgspec.structs.replace(config, scheduler=msgspec.structs.replace(config.scheduler, max_model_len=longest))
    with pytest.raises(CapacityError, match=r"rows of 2 requests of 70368744177664 tokens need [\d,]+ bytes"):
        make_runner(vast, model, NoDrafter())


@pytest.mark.parametrize("tp_size", [1, 2, 4])
@pytest.mark.parametrize("tied", [False, True])
def test_the_weights_of_a_rank_are_counted_to_the_byte(tmp_path: Path, tp_size: int, tied: bool) -> None:
    target = read_target(make_tiny_checkpoint(tmp_path / "model", tie_word_embeddings=tied))

    def count(group: Any) -> int:
        model = build_m3(target, dtype=torch.bfloat16, device="cpu", group=group)
        return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())

    counts = [count(one_rank())] if tp_size == 1 else run_ranks(tp_size, count)
    assert counts == [target_weight_bytes(target, "bfloat16", tp_size)] * tp_size
