"""Benchmarks: speed and memory, compared with other LSTMs."""
