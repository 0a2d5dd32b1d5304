"""Product of few rows with MXFP8 weights, as partial sums over the inner axis."""
