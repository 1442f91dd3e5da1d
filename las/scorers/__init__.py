"""What is added to the decoder's log-probabilities in a search, and what a search may not write. One idea per file."""
