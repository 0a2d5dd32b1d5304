"""The EAGLE-3 draft network."""
