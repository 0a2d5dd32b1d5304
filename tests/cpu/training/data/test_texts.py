from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError
from slipstream.training.data.texts import TextStore, make_text
from slipstream.training.settings import hash_file

FIRST = [make_text((5, 6, 7), 2, 0.7, 0), make_text((1, 2, 3, 4), 1, 0.0, 3)]
SECOND = [make_text((9, 8), 1, 1.0, 1)]


@pytest.fixture
def store(tmp_path):
    store = TextStore(tmp_path / "texts")
    store.append(FIRST)
    store.append(SECOND)
    return store


def test_texts_come_back_in_order(store):
    again = TextStore(store.folder)
    assert again.texts == FIRST + SECOND
    assert (again.num_files, again.num_written) == (2, 1 + 3 + 1)
    again.append(FIRST)
    assert TextStore(store.folder).texts == FIRST + SECOND + FIRST


def test_only_what_the_target_wrote_is_counted(store):
    assert store.count_tokens(10).tolist() == [0, 0, 1, 1, 1, 0, 0, 1, 1, 0]


def test_files_are_named_by_hash(store):
    name = "00001.safetensors"
    assert store.hashes()[name] == hash_file(store.folder / name)
    assert len(store.hashes()) == 2


def test_a_file_that_was_being_written_does_not_count(store):
    (store.folder / "00002.safetensors.partial").write_bytes(b"half")
    assert TextStore(store.folder).num_files == 2


def test_a_gap_is_refused(store):
    (store.folder / "00000.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"00000\.safetensors is missing"):
        TextStore(store.folder)


def test_a_damaged_file_is_refused(store):
    file = store.folder / "00001.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(ConfigError, match=r"00001\.safetensors: not a file of texts"):
        TextStore(store.folder)
