"""Products with weights in compressed formats, for few rows."""
