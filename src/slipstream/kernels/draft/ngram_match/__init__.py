"""Drafts copied from an earlier occurrence of the last tokens."""
