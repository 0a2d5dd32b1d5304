"""Tensors that describe one step. No methods that launch work."""
