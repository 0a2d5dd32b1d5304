"""Per-head RMSNorm followed by partial rotary embedding."""
