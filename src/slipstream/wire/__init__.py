"""Frozen values that cross a room or a process: numbers, strings and tuples only."""
