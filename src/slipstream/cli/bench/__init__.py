"""`slipstream bench`: figures of this machine."""
