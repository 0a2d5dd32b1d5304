"""Modules with explicit tensor arguments."""
