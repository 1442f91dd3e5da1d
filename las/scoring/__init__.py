"""Scoring: files of references and hypotheses, their alignment, and error rates."""
