"""An HTML page of training runs and sweeps that needs no network and no account."""
