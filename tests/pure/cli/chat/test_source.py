"""Settings of an answer."""

from __future__ import annotations

import pytest

from slipstream.base.errors import RequestError
from slipstream.cli.chat.source import Settings


def test_thinking_is_a_variable_of_the_template():
    kwargs = {mode: Settings(thinking=mode).template_kwargs for mode in ("auto", "on", "off")}
    assert kwargs == {"auto": {}, "on": {"thinking_mode": "enabled"}, "off": {"thinking_mode": "disabled"}}


def test_sampling_is_checked():
    sampling = Settings(temperature=0.5, seed=3, max_tokens=9).sampling()
    assert (sampling.temperature, sampling.seed, sampling.max_tokens) == (0.5, 3, 9)
    with pytest.raises(RequestError, match="temperature"):
        Settings(temperature=float("nan")).sampling()
