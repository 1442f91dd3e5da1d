"""Hidden Markov models: pronunciations, states of phones, alignment, labels of frames."""
