"""Decode targets of the MiniMax-M3 family."""
