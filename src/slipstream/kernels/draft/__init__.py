"""Integer arithmetic of drafters: which rows to run, where they are stored, what a history suggests."""
