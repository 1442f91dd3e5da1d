"""Passes whose steps are replays of CUDA graphs."""
