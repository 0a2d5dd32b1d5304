"""Normalised, rotated heads of a fused projection; keys and values go to their pages."""
