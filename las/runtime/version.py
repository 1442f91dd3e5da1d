"""The version of the package, in a module of its own so that every package may read it."""

__version__ = "0.1.0"
