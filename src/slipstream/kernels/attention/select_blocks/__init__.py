"""Choice of the best blocks under a total order."""
