from __future__ import annotations

import re

import slipstream
from slipstream.base.version import VERSION


def test_the_version_has_three_numbers_and_is_the_packages():
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    assert slipstream.__version__ == VERSION
