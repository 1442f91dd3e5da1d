"""What a checkpoint or a training looks like from the inside: one analysis a file, with the paper it is from."""
