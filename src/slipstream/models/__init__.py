"""Networks and their weight rules, one folder each."""
