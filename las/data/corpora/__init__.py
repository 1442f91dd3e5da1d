"""Corpora, one per file."""
