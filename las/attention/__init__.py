"""Attention mechanisms: keys are prepared once per utterance, each query then weighs the encoded states."""
