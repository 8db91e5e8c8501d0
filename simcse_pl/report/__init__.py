"""Tables and figures from results; nothing else in the project draws or formats."""
