"""Benchmarks: one question a module, each with its own reference in the same run.

`python -m bench` asks them all, `python -m bench.append` one. Nothing here is a test.
"""
