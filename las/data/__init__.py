"""Data: audio files, corpora, tokenizers, augmentation and batches."""
