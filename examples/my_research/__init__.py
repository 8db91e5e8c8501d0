"""A research project outside simcse_pl; see README.md."""
