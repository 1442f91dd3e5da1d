"""From audio files and corpora to batches."""
