"""Seeded programs that write training conversations whose answers are right by construction."""
