"""Kernels in Triton's interpreter, with bfloat16 made right; must be imported before any kernel is."""

from __future__ import annotations

import support.interpreter  # noqa: F401
