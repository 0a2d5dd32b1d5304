"""Paged attention: index scores, block selection, sparse and dense attention."""
