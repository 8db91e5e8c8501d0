"""Tables and figures of results. It reads results and never loads a model."""
