from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.training.data.batches import SimilarLengths, pad_texts
from slipstream.training.data.texts import make_text
from support.train_world import make_texts


def test_texts_are_padded_behind_their_end():
    batch = pad_texts([make_text((5, 6, 7), 2, 0.7, 0), make_text((1, 2, 3, 4), 1, 0.0, 3)])
    assert batch.token_ids.tolist() == [[5, 6, 7, 0], [1, 2, 3, 4]]
    assert batch.is_written.tolist() == [[False, False, True, False], [False, True, True, True]]
    assert (batch.lengths, batch.num_tokens) == ((3, 4), 7)


def test_a_batch_follows_from_its_number_alone():
    texts = make_texts(50)
    one, other = SimilarLengths(texts, 64, 1), SimilarLengths(texts, 64, 1)
    far = one.batch(17)
    for number in range(5):
        one.batch(number)
    assert far.token_ids.equal(other.batch(17).token_ids)
    assert any(not one.batch(n).token_ids.equal(SimilarLengths(texts, 64, 2).batch(n).token_ids) for n in range(5))


def test_batches_are_full_and_little_of_them_is_padding():
    batches = [SimilarLengths(make_texts(200), 64, 0).batch(number) for number in range(40)]
    assert all(batch.token_ids.numel() <= 64 for batch in batches)
    sizes = sum(batch.token_ids.numel() for batch in batches)
    assert sum(batch.num_tokens for batch in batches) / sizes > 0.9
    assert len({batch.lengths for batch in batches}) > 5


def test_every_text_is_met():
    texts = make_texts(20)
    batches = SimilarLengths(texts, 32, 0)
    met = {tuple(row[:length]) for n in range(300) for row, length in rows(batches.batch(n))}
    assert met == {tuple(text.token_ids) for text in texts}


def rows(batch):
    return zip(batch.token_ids.tolist(), batch.lengths, strict=True)


def test_texts_too_short_to_train_on_are_left_out():
    short, empty = make_text((1, 2), 1, 0.0, 0), make_text((1, 2, 3), 3, 0.0, 0)
    with pytest.raises(ConfigError, match="no text is long enough"):
        SimilarLengths([short, empty], 64, 0)
    assert SimilarLengths([short, empty, *make_texts(1)], 64, 0).batch(0).token_ids.shape[0] == 1
