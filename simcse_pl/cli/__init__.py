"""The `simcse` command: each module adds its arguments to a parser, and `run` takes what was parsed."""
