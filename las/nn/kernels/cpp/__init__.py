"""Layers, and the speller in training and search, in C++, compiled when first used: CPUs."""
