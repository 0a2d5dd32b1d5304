import pytest

from slipstream.base.errors import ConfigError
from slipstream.config.choices import Choices
from slipstream.config.options import Options


def test_each_value_remembers_where_it_came_from() -> None:
    choices = Choices(Options(seed=5, dtype="auto"))
    assert choices.take("seed", "model.seed") == 5
    assert choices.take("dtype", "model.dtype", auto="float32", note="why") == "float32"
    assert choices.take("max_queue", "server.max_queue") == 256
    assert choices.record("cache.num_pages", 7, "hardware") == 7
    assert dict(choices.origins) == {
        "model.seed": "option", "model.dtype": "derived", "server.max_queue": "default", "cache.num_pages": "hardware",
    }  # fmt: skip
    assert choices.notes == (("model.dtype", "why"),)


def test_the_word_auto_leaves_a_choice_open() -> None:
    choices = Choices(Options(dtype="auto", threads="auto"))
    assert not choices.is_given("dtype")
    assert choices.given("threads") is None


def test_a_later_record_replaces_an_earlier_one() -> None:
    choices = Choices(Options())
    choices.record("a", 1, "default", "old")
    choices.record("a", 2, "switch")
    assert (choices.origins, choices.notes) == ((("a", "switch"),), ())


def test_bad_values_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="tp=0"):
        Choices(Options(tp=0))
