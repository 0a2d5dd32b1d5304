"""Stateless Gumbel noise."""
