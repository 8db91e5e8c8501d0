"""Train a sentence encoder: the same as `simcse train`, for a clone where the package is not installed."""

from simcse_pl.cli import main

if __name__ == "__main__":
    main("train")
