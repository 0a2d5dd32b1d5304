"""Errors, logging and integer helpers: no domain nouns, no torch."""
