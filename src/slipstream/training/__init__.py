"""Training of draft networks on text that their target writes itself."""
