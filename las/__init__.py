"""Listen-Attend-Spell speech recognition built from layer-normalised LSTMs."""

__version__ = "0.1.0"
