"""Drafters behind one interface."""
