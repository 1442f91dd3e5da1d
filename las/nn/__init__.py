"""The model: features, LSTM cells, attention, listener, speller, and the kernels that compute them."""
