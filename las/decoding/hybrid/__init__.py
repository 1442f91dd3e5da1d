"""Searches of hybrid HMM models: phones by a bigram, words by a decoding graph."""
