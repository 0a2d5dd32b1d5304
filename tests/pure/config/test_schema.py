import msgspec
import pytest

from slipstream.config import schema


def test_sections_are_frozen_values_without_tensors() -> None:
    section = schema.ParallelSection(tp_size=1, check_ranks=False)
    with pytest.raises(AttributeError):
        section.tp_size = 2  # type: ignore[misc]
    assert msgspec.json.decode(msgspec.json.encode(section), type=schema.ParallelSection) == section


def test_nothing_in_a_section_is_left_open() -> None:
    structs = [
        value for value in vars(schema).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)
    ]
    with_defaults = {
        struct.__name__: [field.name for field in msgspec.structs.fields(struct) if not field.required]
        for struct in structs
        if struct is not msgspec.Struct
    }
    assert {name for name, open_fields in with_defaults.items() if open_fields} <= {"EngineConfig"}
    assert with_defaults["EngineConfig"] == ["origins", "notes"]
