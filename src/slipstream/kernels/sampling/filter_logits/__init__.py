"""Min-p, top-k and top-p."""
