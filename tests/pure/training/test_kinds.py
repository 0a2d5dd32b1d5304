from __future__ import annotations

import pytest

from slipstream.base.errors import ConfigError, UnsupportedFeature
from slipstream.training.kinds import REFUSED, TRAINED, check_kind


def test_what_is_trained_comes_back():
    assert [check_kind(kind) for kind in TRAINED] == ["eagle3"]


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_is_known_is_refused_with_the_reason(kind):
    with pytest.raises(UnsupportedFeature, match=f"train-drafter {kind}: {REFUSED[kind]}; allowed: eagle3"):
        check_kind(kind)


def test_what_is_unknown_is_refused_too():
    with pytest.raises(ConfigError, match="train-drafter eagle: no such drafter; allowed: eagle3"):
        check_kind("eagle")
