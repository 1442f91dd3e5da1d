"""Audio files: reading, decoding in worker processes, streaming, segmentation."""
