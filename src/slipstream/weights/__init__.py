"""Formats, rules and the streaming loader. Holds no module classes."""
