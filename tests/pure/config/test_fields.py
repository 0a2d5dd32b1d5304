from pathlib import Path

import pytest

from slipstream.base.errors import CheckpointError
from slipstream.config.fields import Fields, read_json


@pytest.fixture
def fields() -> Fields:
    values = {
        "whole": 3, "negative": -1, "flag": True, "number": 0.5, "words": ["a"], "list": [1, 0], "null": None,
        "part": {"inner": 1, "odd": 2}, "text": "x",
    }  # fmt: skip
    return Fields(values, "file.json")


def test_values_are_returned_with_their_types(fields: Fields) -> None:
    assert fields.integer("whole", minimum=3) == 3
    assert fields.flag("flag") is True
    assert fields.number("number") == 0.5
    assert fields.number("whole") == 3.0
    assert fields.texts("words") == ("a",)
    assert fields.integers("list") == (1, 0)
    assert fields.choice("text", ("x", "y")) == "x"


@pytest.mark.parametrize(
    ("method", "name", "allowed"),
    [
        ("integer", "flag", "a whole number of at least 0"),
        ("integer", "negative", "a whole number of at least 0"),
        ("integer", "number", "a whole number"),
        ("number", "flag", "a finite number above 0"),
        ("number", "negative", "a finite number above 0"),
        ("number", "text", "a finite number"),
        ("flag", "whole", "true or false"),
        ("texts", "list", "a list of strings"),
        ("texts", "text", "a list of strings"),
        ("integers", "words", "a list of whole numbers"),
        ("integers", "whole", "a list of whole numbers"),
        ("section", "text", "an object with fields"),
    ],
)
def test_a_wrong_type_names_field_value_and_what_is_allowed(
    fields: Fields, method: str, name: str, allowed: str
) -> None:
    with pytest.raises(CheckpointError) as caught:
        getattr(fields, method)(name)
    message = str(caught.value)
    assert f"file.json.{name}=" in message
    assert allowed in message


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000], ids="abc")
def test_a_number_beyond_every_float_is_refused_like_any_other(value: int) -> None:
    with pytest.raises(CheckpointError, match="theta=.* is not supported; allowed: a finite number above 0"):
        Fields({"theta": value}, "file.json").number("theta")


def test_a_choice_does_not_confuse_true_with_one(fields: Fields) -> None:
    with pytest.raises(CheckpointError, match=r"flag=True is not supported; allowed: 1"):
        fields.choice("flag", (1,))


def test_a_missing_field_is_named_and_null_counts_as_missing(fields: Fields) -> None:
    for name in ("absent", "null"):
        with pytest.raises(CheckpointError, match=f"the field {name} is missing"):
            fields.integer(name)
    assert fields.integer("null", 7) == 7
    assert not fields.has("null")


def test_what_nobody_took_is_reported_with_its_section(fields: Fields) -> None:
    part = fields.section("part")
    assert part is not None
    assert part.integer("inner") == 1
    assert fields.section("part") is part
    fields.ignore(("flag", "number", "words", "list", "null", "text"))
    assert fields.unknown() == ("negative", "part.odd", "whole")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": 1', "not valid JSON (line 1"),
        ("", "may be half-written"),
        ("[1]", "holds a JSON list"),
        (b"\xff\xfe{", "cannot be read as text"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "RecursionError"),
        ('{"a": ' + "9" * 5000 + "}", "not a configuration that can be read"),
    ],
)
def test_a_broken_file_names_itself(tmp_path: Path, content: str | bytes, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CheckpointError) as caught:
        read_json(path, purpose="x")
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_missing_file_and_a_folder_in_its_place_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.json: no such file; it holds the purpose"):
        read_json(tmp_path / "absent.json", purpose="the purpose")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_json(tmp_path, purpose="x")
