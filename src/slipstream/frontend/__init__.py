"""Requests in, streams out; owns tokenising and detokenising."""
