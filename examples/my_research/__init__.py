"""A research idea outside simcse_pl; see README.md."""
