"""Tables and figures of results, and the HTML page. It reads results and never loads a model."""
