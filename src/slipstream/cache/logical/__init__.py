"""Page ids, tables and the prefix index. No bytes, no dtypes, no devices."""
