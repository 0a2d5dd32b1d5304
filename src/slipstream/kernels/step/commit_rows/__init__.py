"""Advance rows by what a step emitted."""
