"""Measurements of what normalisation does inside a model."""
