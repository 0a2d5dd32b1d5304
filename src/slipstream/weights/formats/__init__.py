"""Stored formats of weights. A format turns the stored tensors of one logical tensor into values."""
