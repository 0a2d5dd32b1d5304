"""Every ingredient behind which faults of serving engines have hidden, in one run, against one plain run on the CPU."""

from __future__ import annotations

from collections import Counter
from itertools import count

import msgspec
import pytest
import torch

from slipstream.config.hardware import Hardware
from slipstream.config.options import Options
from slipstream.config.resolve import resolve
from slipstream.parallel.group import one_rank
from slipstream.runner.graphs import row_rungs
from slipstream.speculation.none import NoDrafter
from slipstream.speculation.registry import build_drafter
from support.device_models import load_on
from support.engines import Knobs, TestEngine, make_request
from support.send_back import send_back_youngest
from support.steered_head import SteeredHead
from support.tiny_checkpoints import make_tiny_checkpoint, make_tiny_eagle3

DEVICE = "cuda"
GEOMETRY = {
    "hidden_size": 256,
    "num_layers": 3,
    "num_heads": 16,
    "num_kv_heads": 4,
    "head_dim": 128,
    "rotary_dim": 64,
    "index_head_dim": 128,
    "index_block_size": 128,
    "topk_blocks": 16,
    "dense_intermediate_size": 256,
    "expert_intermediate_size": 128,
    "shared_intermediate_size": 128,
    "max_position_embeddings": 4096,
}
HEAD = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "draft_vocab_size": 96}
BLOCK, TOPK = GEOMETRY["index_block_size"], GEOMETRY["topk_blocks"]
SHARED = 2_200
"""Tokens that half of the prompts begin with: more blocks than are chosen."""

TAILS = (30, 425, 201)
ALONE = (2_049, 130, 2_570)
NUM_NEW = 28
FIRST_SEED = 1000
DRAFT_LEN = 3
MAX_ROWS = 6
NUM_PAGES = 84
"""Fewer than all prompts need one after the other: pages are freed, poisoned and given to others."""

MACHINE = Hardware(num_cpus=4, total_memory_bytes=64 << 30, available_memory_bytes=64 << 30)
PLAIN = Knobs(enable_prefix=False, prefill_chunk_tokens=4096, max_num_seqs=1, num_pages=40, poison=False)
EVERYTHING = Knobs(
    overlap=True, enable_prefix=True, prefill_chunk_tokens=300, max_num_seqs=MAX_ROWS, num_pages=NUM_PAGES, poison=True
)


def texts(lengths, seed):
    draws = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 160, (length,), generator=draws).tolist() for length in lengths]


def prompts():
    shared = texts([SHARED], 1)[0]
    together = [shared + tail for tail in texts(TAILS, 2)]
    return [prompt for pair in zip(together, texts(ALONE, 3), strict=True) for prompt in pair]


def requests(name):
    """One request per prompt, greedy and coupled in turn; its seed says which it is."""
    drawn = ({"temperature": 0.0}, {"temperature": 0.8})
    return [
        make_request(f"{name}{index}", prompt, NUM_NEW, seed=FIRST_SEED + index, **drawn[index % 2])
        for index, prompt in enumerate(prompts())
    ]


class Watched:
    """An engine with the steered head on a device, and a count of what its steps had in them."""

    def __init__(self, config, device, knobs, streams, *, graphs):
        moved, model = load_on(config, device, graphs=graphs)
        head = build_drafter(
            config.speculation,
            model,
            group=one_rank(),
            dtype=torch.float32,
            device=device,
            max_model_len=config.scheduler.max_model_len,
        )
        longest = max(map(len, streams))
        self.head = SteeredHead(
            head,
            streams,
            first_seed=FIRST_SEED,
            vocab_size=config.model.target.vocab_size,
            wrong_at=[position for position in range(longest) if position % 13 in (0, 2, 5, 6)],
            device=device,
        )
        self.engine = TestEngine(moved, model, self.head, knobs)
        self.engine.runner.warm_up()
        self.seen = Counter()
        self._watch(self.engine.runner, self.engine.runner._parts.pools)

    def _watch(self, runner, pools):
        submit, collect, poison_pages = runner.submit, runner.collect, pools.poison_pages
        in_flight = 0

        def submitted(plan):
            nonlocal in_flight
            in_flight += 1
            rows = len(plan.decode_rows)
            self.seen["padded rungs"] += bool(rows) and rows not in row_rungs(MAX_ROWS)
            self.seen["chunks beside decoding rows"] += bool(rows and plan.chunks)
            self.seen["prompts in parts"] += sum(chunk.start > 0 and not chunk.is_last for chunk in plan.chunks)
            self.seen["steps in flight"] = max(self.seen["steps in flight"], in_flight)
            return submit(plan)

        def collected(handle):
            nonlocal in_flight
            in_flight -= 1
            return collect(handle)

        def poisoned(group, pages):
            self.seen[f"poisoned pages of {group}"] += len(pages)
            poison_pages(group, pages)

        runner.submit, runner.collect = submitted, collected
        pools.poison_pages = poisoned

    def run(self, asked, *, late=0):
        """Run requests to their end; the last `late` of them arrive while the first ones decode."""
        engine = self.engine
        for request in asked[: len(asked) - late]:
            engine.submit(request)
        for number in count():
            if number == 14:
                for request in asked[len(asked) - late :]:
                    engine.submit(request)
            if number > 14 and not engine.core.has_work:
                break
            assert number < 2000
            engine.turn()
        return [engine.outcomes[request.request_id] for request in asked]

    def proposals(self):
        """What the head proposed along every stream, where it had not reached the request's end."""
        found = []
        for stream, prompt in enumerate(prompts()):
            first = len(prompt) + 1
            found += self.head.proposals(stream, first, first + NUM_NEW - DRAFT_LEN - 2)
        return torch.tensor(found)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    make_tiny_checkpoint(folder, dtype="float32", vision=False, **GEOMETRY)
    target = resolve(Options(model=str(folder), drafter="none", device="cpu"), MACHINE).model.target
    head = make_tiny_eagle3(folder / "eagle3", target, dtype="float32", **HEAD)
    options = Options(model=str(folder), drafter=str(head), draft_len=DRAFT_LEN, device="cpu", verification="coupled")
    return resolve(options, MACHINE)


def test_all_at_once_equals_one_plain_request_at_a_time_on_the_cpu(config):
    """The combined gate: a fault needs its ingredients together, and here they are.

    - More than 16 blocks: a wrong choice, layout or score of blocks; dense layers that forget the cached prefix.
    - Four local key-value heads: strides and orders that one head hides.
    - Graphs with padded rungs: stale lengths, writes of padding, buffers that moved.
    - Shared prefixes: hashes before writes, hits without index keys or draft rows.
    - Prompts in parts beside decoding rows: carried taps, slots, order of launches.
    - Accepted runs of every length: draft pages out of bounds, taps of the wrong row.
    - Overlap: plans on bounds. Pages full of NaN: any read of what nobody wrote.
    - Requests that are sent back and start again, and pages that change hands.

    In float32 every token equals the plain CPU run, and what the draft head proposes from its own cache does too. Each
    ingredient is counted: a gate without one of them would guard nothing.
    """
    headless = msgspec.structs.replace(config.speculation, eagle3=None)
    plain, model = load_on(msgspec.structs.replace(config, speculation=headless), "cpu", graphs=False)
    reference = TestEngine(plain, model, NoDrafter(), PLAIN).run(requests("r"))
    wanted = [reference[f"r{index}"].token_ids for index in range(len(prompts()))]
    streams = [prompt + answer for prompt, answer in zip(prompts(), wanted, strict=True)]
    on_cpu = Watched(config, "cpu", PLAIN, streams, graphs=False)
    assert [one.token_ids for one in on_cpu.run(requests("r"))] == wanted

    gate = Watched(config, DEVICE, EVERYTHING, streams, graphs=DEVICE == "cuda")
    send_back_youngest(gate.engine.core, every=7)
    first = gate.run(requests("first"), late=2)
    others = [make_request(f"other{index}", text, 4) for index, text in enumerate(texts([1_500, 2_300], 9))]
    gate.run(others)
    second = gate.run(requests("second"), late=3)

    assert [one.token_ids for one in first] == wanted
    assert [one.token_ids for one in second] == wanted
    ours, theirs = gate.proposals(), on_cpu.proposals()
    both = (ours >= 0) & (theirs >= 0)
    assert both.float().mean() > 0.2, "too few proposals to compare"
    assert (ours != theirs)[both].float().mean() < 0.02, "more than near ties of the draft head"

    stats, seen = gate.engine.core.stats(), gate.seen
    print({**seen, "preemptions": stats.num_preemptions, "hits": [one.num_prefix_hit_tokens for one in second]})
    assert sum(len(prompt) > (TOPK + 1) * BLOCK for prompt in prompts()) >= 4
    assert config.model.target.num_kv_heads == 4
    assert seen["padded rungs"] > 0
    assert gate.engine.runner._graphs is not None or DEVICE == "cpu"
    assert sum(one.num_prefix_hit_tokens >= TOPK * BLOCK for one in [*first, *second]) >= 3
    assert seen["prompts in parts"] > 10
    assert seen["chunks beside decoding rows"] > 3
    accepted = Counter(run.num_accepted for one in [*first, *second] for run in one.runs if run.is_verify_step)
    assert all(accepted[number] >= 3 for number in range(DRAFT_LEN + 1)), accepted
    assert seen["steps in flight"] == 2
    assert seen["poisoned pages of target"] > NUM_PAGES
    assert seen["poisoned pages of index"] > NUM_PAGES
    assert stats.num_preemptions >= 3
