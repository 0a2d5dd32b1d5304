"""Rejection sampling over a ladder: which drafts stay, and what follows them."""
