from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.layers.embedding import Embedding
from slipstream.parallel.group import one_rank
from support.layer_parts import fill, make_full, run_ranks

PLACE = {"dtype": torch.float32, "device": "cpu"}


def test_rows_of_the_table_come_back_to_the_bit():
    embedding = Embedding(12, 5, group=one_rank(), **PLACE)
    full = make_full(embedding)
    ids = torch.tensor([0, 11, 5, 6, 5])
    assert torch.equal(fill(embedding, full)(ids), full["", ""][ids])
    for rows in run_ranks(4, lambda group: fill(Embedding(12, 5, group=group, **PLACE), full)(ids)):
        assert torch.equal(rows, full["", ""][ids])


def test_an_id_outside_the_vocabulary_is_an_error():
    embedding = Embedding(12, 5, group=one_rank(), **PLACE)
    for token in (-1, 12):
        with pytest.raises(IndexError):
            fill(embedding, make_full(embedding))(torch.tensor([token]))


def test_no_tokens():
    embedding = Embedding(12, 5, group=one_rank(), **PLACE)
    assert embedding(torch.tensor([], dtype=torch.int64)).shape == (0, 5)


def test_a_vocabulary_that_does_not_divide_is_refused():
    with pytest.raises(ConfigError, match="vocab_size = 13"):
        run_ranks(2, lambda group: Embedding(13, 5, group=group, **PLACE))
