"""Layers, the speller and a step of a search in C++, compiled when first used: CPUs."""
