"""Who holds what: integer arithmetic, without torch."""

from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.parallel.mesh import Mesh


def ranks(tp_size):
    return [Mesh(tp_size, rank) for rank in range(tp_size)]


@pytest.mark.parametrize("tp_size", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [8, 24, 3072])
def test_columns_are_shared_out_in_order(tp_size, size):
    held = [mesh.columns(size, "axis") for mesh in ranks(tp_size)]
    assert [column for part in held for column in part] == list(range(size))
    assert len({len(part) for part in held}) == 1


def test_vocabulary_of_the_family():
    assert Mesh(8, 3).vocabulary(200064) == range(3 * 25008, 4 * 25008)


def test_kv_heads_are_cut_while_there_are_enough():
    assert [mesh.kv_heads(4) for mesh in ranks(2)] == [range(2), range(2, 4)]
    assert [mesh.kv_replicas(4) for mesh in ranks(2)] == [1, 1]


def test_kv_heads_are_replicated_beyond():
    """Eight ranks, four heads: neighbours hold the same one, and its query heads are shared between them."""
    assert [list(mesh.kv_heads(4)) for mesh in ranks(8)] == [[0], [0], [1], [1], [2], [2], [3], [3]]
    assert [mesh.kv_replicas(4) for mesh in ranks(8)] == [2] * 8
    assert [mesh.query_heads(64, 4) for mesh in ranks(8)] == [range(8 * rank, 8 * rank + 8) for rank in range(8)]


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(64, 4), (8, 2), (8, 8), (16, 1)])
@pytest.mark.parametrize("tp_size", [1, 2, 4, 8])
def test_query_heads_stay_with_their_kv_heads(tp_size, num_heads, num_kv_heads):
    seen = []
    for mesh in ranks(tp_size):
        queries, keys = mesh.query_heads(num_heads, num_kv_heads), mesh.kv_heads(num_kv_heads)
        assert {head * num_kv_heads // num_heads for head in queries} == set(keys)
        seen += queries
    assert seen == list(range(num_heads))


def test_index_heads_follow_the_kv_heads():
    for mesh in ranks(8):
        assert mesh.index_heads(4, 4) == mesh.kv_heads(4)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Mesh(0, 0), "tp_size 0"),
        (lambda: Mesh(2, 2), "tp_rank 2 of tp_size 2"),
        (lambda: Mesh(2, -1), "tp_rank -1"),
        (lambda: Mesh(2, 0).columns(7, "intermediate_size"), "intermediate_size = 7 does not divide by tp_size = 2"),
        (lambda: Mesh(3, 0).vocabulary(200065), "vocab_size = 200065"),
        (lambda: Mesh(3, 0).kv_heads(2), "tp_size = 3 is no multiple of num_kv_heads = 2"),
        (lambda: Mesh(2, 0).kv_heads(3), "num_kv_heads = 3 does not divide"),
        (lambda: Mesh(1, 0).query_heads(7, 2), "num_heads = 7 is no multiple"),
        (lambda: Mesh(4, 0).query_heads(6, 2), "num_heads = 6 does not divide by tp_size = 4"),
        (lambda: Mesh(1, 0).index_heads(2, 4), "num_index_heads = 2, num_kv_heads = 4"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(ask, message):
    with pytest.raises(ConfigError, match=message):
        ask()
