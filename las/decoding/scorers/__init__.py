"""Scores and constraints that a beam search adds to those of the speller."""
