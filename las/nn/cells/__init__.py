"""LSTM cells, one equation per file. To add one, write a file here and a preset in configs/cell."""
