"""The catalogue of metrics and their text exposition. No policy."""
