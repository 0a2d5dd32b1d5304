"""The MiniMax-M3 target."""
