"""Layers in Triton: NVIDIA GPUs."""
