"""Writes into paged storage."""
