"""Prompts, the texts that the target writes, and batches of them."""
