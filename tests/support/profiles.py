"""Hypothesis settings of the tests that share machines with others: no deadlines, nothing written to disk."""

from __future__ import annotations

from hypothesis import settings

relaxed = settings(deadline=None, database=None)
