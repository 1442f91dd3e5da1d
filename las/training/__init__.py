"""Training, from a config to a trained model: setup, loop, step, checkpointing, validation."""
