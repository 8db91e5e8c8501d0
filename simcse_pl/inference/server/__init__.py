"""The local search page, and the JSON endpoint that it asks."""
