"""Tokens, text and messages. Knows nothing of HTTP or of the engine."""
