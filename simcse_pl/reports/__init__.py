"""Tables and figures of results, and their forms; nothing else in simcse_pl draws, or lays out a table."""
