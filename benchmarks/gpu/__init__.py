"""What a GPU computes, compared with the CPU, and how fast it trains and encodes: `make gpu`, docs/gpu.md."""
