"""RMSNorm of whole rows."""
