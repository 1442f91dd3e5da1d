"""What a training predicts: tokens of texts, or states of phones frame by frame."""
