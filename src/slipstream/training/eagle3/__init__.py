"""The EAGLE-3 head as something to train."""
