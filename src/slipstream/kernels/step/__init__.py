"""Changes to the row state at the end of a step."""
