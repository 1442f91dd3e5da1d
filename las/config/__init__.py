"""Configs: composed by Hydra, checked, and built into the objects that they name."""
