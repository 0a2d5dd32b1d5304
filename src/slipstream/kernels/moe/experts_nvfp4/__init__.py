"""Routed experts whose weights are NVFP4."""
