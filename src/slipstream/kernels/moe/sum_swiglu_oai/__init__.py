"""The clamped gated activation of a sum of partial products."""
