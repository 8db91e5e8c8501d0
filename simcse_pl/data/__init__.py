"""Training data: files, rows, the token cache, views and batches."""
