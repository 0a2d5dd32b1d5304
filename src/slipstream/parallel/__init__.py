"""Ranks, groups and collectives, with a one-rank fast path."""
