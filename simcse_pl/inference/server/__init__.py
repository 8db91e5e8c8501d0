"""The search page of `simcse serve`."""
