"""Measure parts of the engine from inside, on the device."""
