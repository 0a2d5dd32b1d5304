"""Measure an engine from outside: workloads, an HTTP client, load, statistics, provenance, reports.

Not here: anything that reaches the engine, the front end or the server of this project. What is measured is what a
user's client would see.
"""
