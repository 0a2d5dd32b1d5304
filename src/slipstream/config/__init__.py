"""Options, strict checkpoint configuration, resolution and explanation. Never reaches torch."""
