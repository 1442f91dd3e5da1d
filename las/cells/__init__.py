"""LSTM cells: one equation per file, all sharing the contract of `las.cells.base`."""
