"""The top of the package: public names, loaded lazily, without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import slipstream


def test_public_names_are_what_they_say():
    for name in slipstream.__all__:
        assert getattr(slipstream, name) is not None
    assert slipstream.SamplingParams(temperature=0.0).is_greedy
    spec = slipstream.GrammarSpec.json_schema({"type": "object"})
    assert slipstream.SamplingParams(grammar=spec).grammar is spec
    assert issubclass(slipstream.errors.ConfigError, slipstream.errors.SlipstreamError)
    assert set(dir(slipstream)) == set(slipstream.__all__)


def test_other_names_are_refused_with_the_list():
    with pytest.raises(AttributeError, match="it has LLM"):
        _ = slipstream.no_such_name


def test_no_public_name_imports_torch():
    use_all = "for name in slipstream.__all__: getattr(slipstream, name)"
    probe = f"import sys, slipstream\n{use_all}\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
