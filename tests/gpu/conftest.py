"""Tests that need a CUDA device; not among the default paths. Run: pytest tests/gpu."""

from __future__ import annotations

import gc

import pytest
import torch


def pytest_configure(config):
    if not torch.cuda.is_available():
        pytest.exit("tests/gpu needs a CUDA device and a CUDA build of torch; other tests do not", returncode=3)
    # What the references multiply in float32 must not be rounded to 10 bits.
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(autouse=True, scope="module")
def free_memory():
    """Give memory back to the driver between modules: engines are sized by what it says is free."""
    yield
    gc.collect()
    torch.cuda.empty_cache()
