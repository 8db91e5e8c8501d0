"""The dashboard of training runs and sweeps as one page that needs no network and no account."""
