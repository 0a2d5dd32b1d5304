from __future__ import annotations

from functools import partial

import pytest
import torch

from slipstream.base.errors import ShapeError
from slipstream.kernels.attention.choose_blocks.contract import choose_blocks
from slipstream.kernels.attention.dense_attend.contract import dense_attend
from slipstream.kernels.attention.sparse_attend import reference
from slipstream.kernels.attention.sparse_attend.contract import sparse_attend
from support import mutants, oracles
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of
from support.paged_world import make_world, padded, tokens_of, with_identity_pages, with_shuffled_pages

OPERATION = "attention/sparse_attend"
FAULTS = [
    ("no_k_scale", "float8"),
    ("no_v_scale", "float8"),
    ("masked_by_score_only", "long"),
    ("first_head_for_all", "long"),
    ("strided_groups", "long"),
    ("whole_block", "long"),
    ("no_scale", "long"),
    ("rounded_probabilities", "bf16"),
    ("padding_is_block_0", "nothing_chosen"),
    ("nothing_is_nan", "nothing_chosen"),
    ("head_major", "square"),
    ("head_major", "long"),
]
SEQ_LENS, QUERY_LENS = (57, 1, 40, 23), (1, 1, 7, 3)
ADDRESSING = ("q", "k_pages", "v_pages", "page_table", "req_of_token", "positions")


def with_choice(world, topk=4):
    names = ("index_q", "index_k_pages", "page_table", "req_of_token", "positions")
    return {**world, "topk_blocks": choose_blocks(*[world[name] for name in names], topk, 0, 1)}


def attend(world):
    return sparse_attend(*[world[name] for name in (*ADDRESSING, "topk_blocks")])


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


@pytest.mark.parametrize(("fault", "case_name"), FAULTS)
def test_fault_is_outside_the_tolerance(fault, case_name):
    """Layout mix-ups, ids of padding, fully masked rows: S1, S4 and S6 of the public faults."""
    check_mutant(OPERATION, case_name, partial(mutants.sparse_attend, fault=fault), mutants.sparse_attend)


def test_the_square_case_really_is_square():
    """Token-major and head-major lists agree in shape there, and differ in content."""
    chosen = inputs_of(OPERATION, "square")["topk_blocks"]
    assert chosen.shape[0] == chosen.shape[1]
    assert not torch.equal(chosen, chosen.transpose(0, 1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("page_size", [4, 8])
def test_all_visible_blocks_chosen_is_dense_attention(seed, page_size):
    """To the bit, in a mixed batch."""
    world = make_world(SEQ_LENS, QUERY_LENS, page_size=page_size, seed=seed)
    everything = with_choice(world, topk=16)
    assert torch.equal(attend(everything), dense_attend(*[world[name] for name in ADDRESSING], 0))


def test_few_blocks_differ_from_dense_attention():
    """The property above would hold for a sparse layer that ignores its choice; this one would not."""
    world = with_choice(make_world((57,), (1,)), topk=4)
    dense = dense_attend(*[world[name] for name in ADDRESSING], 0)
    assert (attend(world) - dense).abs().max() > 1e-2


@pytest.mark.parametrize("seq_len", [1, 3, 4, 5, 15, 16, 17, 19, 20, 21])
def test_lengths_around_page_edges(seq_len):
    """page_size 4 and topk 4: fewer, exactly, and more than topk blocks; the spare ids are -1, page 0 holds NaN."""
    world = with_choice(make_world((seq_len,), (1,)))
    expected = oracles.sparse_attend(*[world[name] for name in (*ADDRESSING, "topk_blocks")])
    assert world["k_pages"][0].isnan().all()
    assert torch.allclose(attend(world).double(), expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_physical_pages_do_not_matter(seed):
    world = with_choice(make_world(SEQ_LENS, QUERY_LENS, seed=seed))
    mixed = attend(world)
    assert torch.equal(attend(with_shuffled_pages(world, seed + 1)), mixed)
    assert torch.allclose(attend(with_identity_pages(world)), mixed, atol=1e-6)


def test_alone_in_a_batch_and_padded_are_the_same():
    world = with_choice(make_world(SEQ_LENS, QUERY_LENS))
    mixed = attend(world)
    longer = attend(padded(world, 3))
    assert torch.equal(longer[: len(mixed)], mixed)
    assert not longer[len(mixed) :].any()
    for req in range(len(SEQ_LENS)):
        tokens = (world["req_of_token"] == req).nonzero().squeeze(1)
        assert torch.equal(attend(tokens_of(world, tokens)), mixed[tokens])


def test_ladder_rows_equal_single_tokens():
    """A ladder over a page's edge, each row with its own blocks and length."""
    world = with_choice(make_world((62,), (9,)))
    mixed = attend(world)
    for row in range(9):
        assert torch.allclose(attend(tokens_of(world, torch.tensor([row])))[0], mixed[row], atol=1e-6)


def test_a_run_of_several_tiles_equals_single_tokens():
    world = with_choice(make_world((150,), (150,), page_size=8, max_pages=20))
    mixed = attend(world)
    for row in (0, 63, 64, 127, 128, 149):
        assert torch.allclose(attend(tokens_of(world, torch.tensor([row])))[0], mixed[row], atol=1e-6)


def test_nan_in_blocks_that_others_chose_leaves_no_trace():
    """Two rows of a ladder share the pass over their blocks: NaN in a block of one must not reach the other."""
    world = make_world((32,), (2,), heads=(4, 2, 8))
    world["topk_blocks"] = torch.tensor([[[1, 7, -1], [2, 7, -1]], [[3, 7, -1], [4, 7, -1]]], dtype=torch.int32)
    clean = attend(world)
    for index_block in (2, 3):
        for pool in ("k_pages", "v_pages"):
            world[pool][int(world["page_table"][0, index_block])] = float("nan")
    stained = attend(world)
    heads_of = {0: slice(0, 2), 1: slice(2, 4)}
    assert torch.allclose(stained[0, heads_of[0]], clean[0, heads_of[0]], atol=1e-6)
    assert torch.allclose(stained[1, heads_of[1]], clean[1, heads_of[1]], atol=1e-6)
    assert stained[0, heads_of[1]].isnan().all()
    assert stained[1, heads_of[0]].isnan().all()


def test_order_of_ids_does_not_matter():
    world = with_choice(make_world(SEQ_LENS, QUERY_LENS))
    shuffled = {**world, "topk_blocks": world["topk_blocks"][:, :, torch.tensor([2, 0, 3, 1])]}
    assert torch.equal(attend(shuffled), attend(world))


def test_one_hot_values_tell_which_tokens_were_read():
    world = make_world((20,), (1,), page_size=4, heads=(1, 1, 32))
    positions = torch.arange(20)
    world["v_pages"][world["page_table"][0, positions // 4].long(), positions % 4, 0] = torch.eye(32)[:20]
    world["topk_blocks"] = torch.tensor([[[0, 2, 4]]], dtype=torch.int32)
    read = attend(world)[0, 0].nonzero().squeeze(1).tolist()
    assert read == [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topk_blocks": torch.zeros(2, 11, 3, dtype=torch.int32)}, r"topk_blocks is .* allowed is \[11, 2, topk\]"),
        ({"topk_blocks": torch.zeros(11, 2, 3, dtype=torch.int64)}, "topk_blocks is .*int64"),
        ({"q": torch.zeros(11, 5, 8)}, "q is"),
        ({"positions": torch.zeros(3, dtype=torch.int64)}, "positions is"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        sparse_attend(**{**inputs_of(OPERATION, "long"), **changes})


@pytest.mark.parametrize(
    ("choice", "goes_by_head"),
    [
        ([[1, 7], [2, 7]], True),
        ([[1, 3], [5, 2]], True),
        ([[1, 7], [1, 7]], False),
        ([[1, 7], [2, 3]], False),
        ([[1, 7], [7, -1]], False),
        ([[-1, -1], [2, 7]], False),
    ],
)
def test_heads_of_a_lone_token_read_their_own_blocks(choice, goes_by_head, monkeypatch):
    """Where they see equally many keys; else the union is masked. Block 7 is unfinished. Both ways match the oracle."""
    calls = []
    by_head = reference._load_by_head
    monkeypatch.setattr(reference, "_load_by_head", lambda *pages: calls.append(1) or by_head(*pages))
    world = make_world((31,), (1,), heads=(4, 2, 8))
    world["topk_blocks"] = torch.tensor([choice], dtype=torch.int32)
    expected = oracles.sparse_attend(*[world[name] for name in (*ADDRESSING, "topk_blocks")])
    assert torch.allclose(attend(world).double(), expected, atol=1e-6)
    assert bool(calls) is goes_by_head
