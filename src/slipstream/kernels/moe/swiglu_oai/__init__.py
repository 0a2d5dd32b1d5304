"""The clamped gated activation."""
