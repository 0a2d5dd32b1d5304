"""Residual addition followed by RMSNorm."""
