"""Index scores and the choice in one call."""
