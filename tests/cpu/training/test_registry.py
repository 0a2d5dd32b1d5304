from __future__ import annotations

import pytest

from slipstream.base.errors import UnsupportedFeature
from slipstream.training.kinds import TRAINED
from slipstream.training.registry import find_kind


def test_every_kind_that_is_trained_can_be_built():
    for kind in TRAINED:
        choose_taps, build = find_kind(kind)
        assert choose_taps((), 6) == (1, 3, 4)
        assert callable(build)


def test_other_kinds_are_refused():
    with pytest.raises(UnsupportedFeature, match="dspark: block drafting is not part of this release"):
        find_kind("dspark")
