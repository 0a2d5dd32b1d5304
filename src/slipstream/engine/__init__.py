"""The loop, processes and health. No HTTP, no text."""
