"""Attention over all visible tokens of pages."""
