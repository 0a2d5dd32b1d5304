from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import KernelError, ShapeError
from slipstream.kernels.attention.choose_blocks import cpu, reference
from slipstream.kernels.attention.choose_blocks.contract import choose_blocks
from slipstream.kernels.attention.index_score.contract import index_score
from slipstream.kernels.attention.select_blocks.contract import select_blocks
from slipstream.kernels.select import select
from support import oracles
from support.kernel_cases import as_tuple, cases_of, check_case, expected_of, inputs_of
from support.paged_world import make_world, padded, tokens_of, with_shuffled_pages

OPERATION = "attention/choose_blocks"
SEQ_LENS, QUERY_LENS = (57, 1, 40, 23), (1, 1, 7, 3)


def choose(world, topk=4, num_init_blocks=0, num_local_blocks=1):
    names = ("index_q", "index_k_pages", "page_table", "req_of_token", "positions")
    return choose_blocks(*[world[name] for name in names], topk, num_init_blocks, num_local_blocks)


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_it_is_the_two_operations_that_it_joins(case):
    inputs = inputs_of(OPERATION, case)
    rules = {name: inputs[name] for name in ("topk", "num_init_blocks", "num_local_blocks")}
    scores = index_score(**{name: value for name, value in inputs.items() if name not in rules})
    page_size = inputs["index_k_pages"].shape[1]
    chosen = select_blocks(scores, inputs["positions"], page_size, **rules)
    assert torch.equal(choose_blocks(**inputs), chosen)


def test_a_wrong_choice_would_be_seen():
    """In the long cases scores decide: choosing the first or the latest blocks is rejected."""
    inputs = inputs_of(OPERATION, "integers")
    expected = expected_of(OPERATION, inputs)[0]
    positions, page_size = inputs["positions"], inputs["index_k_pages"].shape[1]
    shape = (len(positions), 2, inputs["index_page_table"].shape[1])
    rules = [inputs[name] for name in ("topk", "num_init_blocks", "num_local_blocks")]
    first = oracles.select_blocks(torch.zeros(shape), positions, page_size, *rules)
    latest = oracles.select_blocks(torch.arange(shape[2]).float().expand(shape), positions, page_size, *rules)
    assert not torch.equal(as_tuple(first)[0], expected)
    assert not torch.equal(as_tuple(latest)[0], expected)


@pytest.mark.parametrize("seq_len", [1, 3, 4, 5, 8, 15, 16, 17, 20])
def test_lengths_around_page_edges(seq_len):
    """Positions on both sides of a block's edge, and of topk blocks: page_size 4, topk 4."""
    chosen = choose(make_world((seq_len,), (1,)))
    own = (seq_len - 1) // 4
    for ids in chosen[0].tolist():
        real = [i for i in ids if i >= 0]
        assert len(real) == min(4, own + 1)
        assert own in real


def test_rows_of_a_ladder_have_blocks_of_their_own():
    """A ladder over a page's edge: no row chooses a block after its own, and each takes its own."""
    world = make_world((62,), (8,))
    chosen = choose(world)
    for row, position in enumerate(world["positions"].tolist()):
        assert int(chosen[row].max()) == position // 4
        assert torch.equal(choose(tokens_of(world, torch.tensor([row])))[0], chosen[row])


def test_batch_padding_and_physical_pages_do_not_matter():
    world = make_world(SEQ_LENS, QUERY_LENS)
    chosen = choose(world)
    assert torch.equal(choose(with_shuffled_pages(world, 5)), chosen)
    assert torch.equal(choose(padded(world, 2))[: len(chosen)], chosen)
    assert (choose(padded(world, 2))[len(chosen) :] == -1).all()
    for req in range(len(SEQ_LENS)):
        tokens = (world["req_of_token"] == req).nonzero().squeeze(1)
        assert torch.equal(choose(tokens_of(world, tokens)), chosen[tokens])


def test_empty_batch():
    assert choose(tokens_of(make_world((5,), (1,)), torch.tensor([], dtype=torch.int64))).shape == (0, 2, 4)


def test_disagreements_are_refused():
    inputs = inputs_of(OPERATION, "integers")
    with pytest.raises(ShapeError, match="choose_blocks: index_q"):
        choose_blocks(**{**inputs, "index_q": torch.zeros(13, 2, 15)})
    with pytest.raises(ShapeError, match="choose_blocks: positions"):
        choose_blocks(**{**inputs, "positions": torch.zeros(1, dtype=torch.int64)})
    with pytest.raises(KernelError, match="topk 1"):
        choose_blocks(**{**inputs, "topk": 1})


@pytest.mark.parametrize("forced", [(0, 0), (0, 1), (1, 1), (2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_the_host_chooses_as_the_reference_does(seed, forced):
    """To the bit, with ties in plenty: queries and keys are small integers."""
    assert select(OPERATION, "cpu").function is cpu.choose_blocks
    world = padded(make_world(SEQ_LENS, QUERY_LENS, seed=seed), 2)
    world["index_q"] = world["index_q"].sign()
    world["index_k_pages"] = world["index_k_pages"].sign()
    arguments = [world[name] for name in ("index_q", "index_k_pages", "page_table", "req_of_token", "positions")]
    chosen = cpu.choose_blocks(*arguments, 4, *forced)
    assert chosen.dtype == torch.int32
    assert torch.equal(chosen, reference.choose_blocks(*arguments, 4, *forced))
    assert torch.equal(cpu.choose_blocks(*arguments, 32, *forced), reference.choose_blocks(*arguments, 32, *forced))


def test_many_scores_go_through_the_reference(monkeypatch):
    calls = []
    monkeypatch.setattr(cpu.reference, "choose_blocks", lambda *arguments: calls.append(len(arguments)))
    monkeypatch.setattr(cpu, "MAX_HOST_SCORES", 2 * 15 - 1)
    choose(make_world((57,), (1,)))
    assert calls == [8]
