"""Augmentation of training utterances: speed, noise, rooms and channels of waveforms, masks and warps of features."""
