"""Sequences of tokens that may not be completed."""
