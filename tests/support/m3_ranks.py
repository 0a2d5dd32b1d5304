"""One rank of a tensor-parallel network in a process of its own, and the scenario that every rank runs."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slipstream.models.m3.model import M3Model
from slipstream.parallel.group import connect
from slipstream.parallel.mesh import Mesh
from support.m3_world import PagedCache, load_target, prompt, recorded_blocks

TIMEOUT_S = 120.0
TAPS = (0, 3)


def run_scenario(model: M3Model) -> dict[str, Tensor]:
    """Prefill in company and padded, then a five-token ladder; return logits, taps and chosen blocks."""
    first, second = prompt(model.spec, 70, seed=1), prompt(model.spec, 30, seed=2)
    cache = PagedCache(model, num_reqs=2, max_tokens=80)
    with recorded_blocks() as chosen:
        outputs = [cache.step([(0, first[:40]), (1, second[:25])], num_padding=3)]
        outputs.append(cache.step([(0, first[40:65])]))
        outputs.append(cache.step([(1, second[25:]), (0, first[65:])]))
    with torch.inference_mode():
        logits = torch.cat([model.compute_logits(output.hidden) for output in outputs])
    taps = torch.cat([output.aux_hidden_states for output in outputs])
    return {"logits": logits.clone(), "taps": taps.clone(), "chosen": torch.cat(chosen)}


def _rank_main(rank: int, tp_size: int, folder: str, meeting: str, results: str) -> None:
    torch.set_num_threads(1)
    group = connect(Mesh(tp_size, rank), init_method=f"file://{meeting}", backend="gloo", timeout_s=TIMEOUT_S)
    try:
        model = load_target(Path(folder), group=group, aux_layer_ids=TAPS)
        torch.save(run_scenario(model), f"{results}/{rank}.pt")
    finally:
        group.close()


def run_ranks(folder: Path, tp_size: int, workdir: Path) -> list[dict[str, Any]]:
    """Run the scenario on `tp_size` processes and return what each of them saw."""
    context = multiprocessing.get_context("spawn")
    arguments = [(rank, tp_size, str(folder), str(workdir / "meeting"), str(workdir)) for rank in range(tp_size)]
    processes = [context.Process(target=_rank_main, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(TIMEOUT_S)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * tp_size
    return [torch.load(workdir / f"{rank}.pt") for rank in range(tp_size)]
