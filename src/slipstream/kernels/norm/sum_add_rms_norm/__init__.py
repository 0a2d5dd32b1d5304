"""A sum of partial products, added to the residual stream and normalised."""
