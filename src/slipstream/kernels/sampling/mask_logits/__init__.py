"""Sets of allowed tokens, one bit each."""
