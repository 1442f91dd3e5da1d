"""How fast it is: one module for each suite of the verb `benchmark`, and what they share."""
