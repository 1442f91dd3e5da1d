"""LSTM cells, one equation per file. Adding one is a file here and a card in configs/cell."""
