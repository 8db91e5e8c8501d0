"""From files to batches: readers, batches of views, the datamodule; and the Wikipedia extraction."""
