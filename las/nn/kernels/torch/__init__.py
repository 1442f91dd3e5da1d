"""Layers and the speller's pass in PyTorch, with a backward pass written by hand: any device."""
