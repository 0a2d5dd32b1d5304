"""Decode targets: flat forward passes, each for one GPU architecture and one way of storing weights."""
