"""The command line: parses arguments and composes what the other rooms offer.

Not here: anything that cannot be called from Python. Modules that need torch are imported inside commands, so that
`--help` stays quick.
"""
