"""Language models: n-grams and LSTMs, estimated, trained, read and scored."""
