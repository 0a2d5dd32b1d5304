"""Filtering, drawing and chain verification over logits. Knows rows of a matrix, not requests."""
