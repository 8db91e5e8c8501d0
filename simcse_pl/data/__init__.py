"""Training and evaluation data: readers, views, batches, the datamodule and converters of published corpora."""
