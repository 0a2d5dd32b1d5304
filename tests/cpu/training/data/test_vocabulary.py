from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.training.data.vocabulary import MAX_AUTO_SIZE, draft_vocab_size, frequent_ids


def test_the_size_is_half_of_a_small_vocabulary_and_bounded_for_a_large_one():
    assert draft_vocab_size(0, 4096) == 2048
    assert draft_vocab_size(0, 200_064) == MAX_AUTO_SIZE
    assert draft_vocab_size(0, 1) == 1
    assert draft_vocab_size(77, 4096) == 77


def test_more_than_there_is_is_refused():
    with pytest.raises(ConfigError, match="--draft-vocab-size 11: the target has 10 tokens"):
        draft_vocab_size(11, 10)


def test_the_most_frequent_are_kept_in_order_of_their_ids():
    counts = torch.tensor([5, 0, 9, 1, 9, 0])
    assert frequent_ids(counts, 3).tolist() == [0, 2, 4]
    assert frequent_ids(counts, 5).tolist() == [0, 1, 2, 3, 4]
    assert counts.tolist() == [5, 0, 9, 1, 9, 0]


def test_what_must_be_there_is_kept_whatever_its_count():
    assert frequent_ids(torch.tensor([5, 0, 9, 1, 9, 0]), 2, (5,)).tolist() == [2, 5]
