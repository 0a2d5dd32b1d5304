"""Biases of single tokens, and end tokens that may not come yet."""
