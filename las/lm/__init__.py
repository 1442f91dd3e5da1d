"""Language models: n-grams estimated, read, written and looked up."""
