"""Routing to experts and their arithmetic."""
