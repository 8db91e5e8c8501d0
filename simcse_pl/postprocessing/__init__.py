"""Post-processing of frozen embeddings: whitening, removal of the top components, and a normalizing flow."""
