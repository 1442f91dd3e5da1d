"""Attention mechanisms, one per file."""
