from __future__ import annotations

import pytest
import torch

from slipstream.base.errors import ConfigError
from slipstream.kernels.capability import check_capability

GPU = torch.device("cuda")


@pytest.fixture
def capability(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "SOME GPU")
    return lambda *numbers: monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: numbers)


def test_hopper_and_a_cpu_pass(capability):
    capability(9, 0)
    check_capability(GPU)
    capability(8, 0)
    check_capability(torch.device("cpu"))


@pytest.mark.parametrize("numbers", [(7, 5), (8, 9), (10, 0), (12, 0)])
def test_others_are_refused_by_name(capability, numbers):
    capability(*numbers)
    with pytest.raises(ConfigError, match=rf"SOME GPU has compute capability {numbers[0]}\.{numbers[1]}; .*device=cpu"):
        check_capability(GPU)
