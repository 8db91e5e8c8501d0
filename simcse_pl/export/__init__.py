"""A trained encoder in the forms that other tools read: sentence-transformers, ONNX, the hub's model card, MTEB."""
