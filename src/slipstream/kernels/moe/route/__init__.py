"""Sigmoid routing with a selection-only bias."""
