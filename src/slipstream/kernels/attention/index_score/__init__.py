"""Best visible product of an index query with the keys of each block."""
