"""Foundations of every process: configs, errors, devices, signals, progress. Knows no model and no corpus."""
