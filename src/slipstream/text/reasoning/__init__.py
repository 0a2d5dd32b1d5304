"""Reasoning apart from content: which state an answer starts in (mode), and its text while it arrives (parser)."""
