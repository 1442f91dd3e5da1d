"""Greedy and beam search, scorers, transcripts with times."""
