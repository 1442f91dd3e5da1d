"""Synthetic speech for the embedded corpora, by eSpeak NG."""
