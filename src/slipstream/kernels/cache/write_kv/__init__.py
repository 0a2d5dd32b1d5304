"""Scatter of keys, values and index keys into pages."""
