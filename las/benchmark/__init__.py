"""Speed and memory, against other LSTMs."""
