"""Tasks of trainings: tokens of texts, or states of phones frame by frame."""
