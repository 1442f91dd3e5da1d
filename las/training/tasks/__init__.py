"""Targets of trainings: tokens of utterances, states of phones frame by frame, or tokens of text alone."""
