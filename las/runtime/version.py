"""Version of the package, in its own module so that every package may read it."""

__version__ = "0.1.0"
