"""Fast implementations of the recurrence and the speller, each equal to a plain reference."""
