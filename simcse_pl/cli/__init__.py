"""The `simcse` command. Each command is a module with `add_arguments(parser)` and `run(arguments)`."""
