"""`python -m simcse_pl.cli --config-name COMMAND`: the jobs of a sweep and their ranks start in this way."""

import sys

from simcse_pl.cli.entry_point import main

if __name__ == "__main__":
    main(sys.argv[2])
