"""Repetition, presence and frequency penalties at every ladder row."""
