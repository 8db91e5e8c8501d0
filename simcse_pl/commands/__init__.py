"""The commands of `python -m simcse_pl`: each adds its arguments to a parser and runs on what was parsed."""
