"""Attention over chosen blocks of pages."""
