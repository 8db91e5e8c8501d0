"""Tables and figures of results, and their forms; nothing else in the project draws, or lays out a table."""
