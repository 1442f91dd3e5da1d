"""Reports of recipes: tables for the repository, and one HTML page with everything in it."""
