"""Where the draft rows of a step are stored, and which of them count."""
