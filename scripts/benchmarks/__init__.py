"""Measurements of time and memory: `python scripts/benchmark.py suite=...`."""
