"""Longest accepted prefix of a draft chain."""
