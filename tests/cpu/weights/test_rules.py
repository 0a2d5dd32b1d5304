import pytest

from slipstream.weights.rules import IgnoreRule, WeightRule


@pytest.mark.parametrize(
    ("source", "count"),
    [((), 24), ((slice(None), slice(1, 3)), 16), ((slice(2, 5),), 6), ((slice(0, 2), slice(None), slice(0, 1)), 6)],
)
def test_a_rule_knows_how_much_it_copies(source: tuple[slice, ...], count: int) -> None:
    shapes = {24: (4, 6), 16: (8, 4), 6: (7, 2)}
    shape = (2, 3, 5) if len(source) == 3 else shapes[count]
    assert WeightRule("p", "t", shape, source).num_elements == count


def test_an_ignore_rule_matches_whole_names() -> None:
    rule = IgnoreRule(r"(model\.)?vision\..*", "why")
    assert rule.matches("vision.a.b")
    assert rule.matches("model.vision.a")
    assert not rule.matches("other.vision.a")
    assert not rule.matches("visions.a")
