import pytest

from slipstream.base.errors import ConfigError
from slipstream.base.switches import SWITCHES, Switches, environment_switches, read_switches


def test_an_environment_without_switches_gives_the_defaults() -> None:
    assert read_switches({"PATH": "/bin", "slipstream_x": "1"}) == Switches()


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("ON", True), ("0", False), ("off", False)])
def test_poison_is_read(text: str, value: bool) -> None:
    switches = read_switches({"SLIPSTREAM_POISON_FREED_PAGES": text})
    assert switches.poison_freed_pages is value
    assert switches.given == {"poison_freed_pages"}


def test_the_check_of_ranks_is_read_from_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not environment_switches().check_ranks
    monkeypatch.setenv("SLIPSTREAM_CHECK_RANKS", "yes")
    assert environment_switches() == Switches(check_ranks=True, given=frozenset({"check_ranks"}))


def test_the_log_level_is_read() -> None:
    assert read_switches({"SLIPSTREAM_LOG_LEVEL": "Debug"}).log_level == "debug"


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_a_value_that_does_not_parse_stops_the_start(switch: object) -> None:
    name = switch.name  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=rf"{name}='maybe': allowed: "):
        read_switches({name: "maybe"})


def test_an_unknown_switch_stops_the_start_and_a_near_one_is_suggested() -> None:
    with pytest.raises(ConfigError, match="did you mean SLIPSTREAM_POISON_FREED_PAGES"):
        read_switches({"SLIPSTREAM_POISON_FREED_PAGE": "1"})
    with pytest.raises(ConfigError, match="SLIPSTREAM_XYZ is not a switch: allowed: "):
        read_switches({"SLIPSTREAM_XYZ": "1"})


def test_every_switch_is_declared_with_an_owner_and_sets_a_field() -> None:
    for switch in SWITCHES:
        assert switch.field in Switches.__dataclass_fields__
        assert switch.owner
        assert switch.help.endswith(".")
