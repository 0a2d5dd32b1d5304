"""Sum of partial products, in order."""
