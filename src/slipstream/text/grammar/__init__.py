"""Structured output: grammars over tokens, and the masks of a ladder. The one door to the library llguidance."""
