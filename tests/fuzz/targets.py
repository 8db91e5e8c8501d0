"""All targets by their names."""

from tests.fuzz import encoders, evaluation, results, sentences, vectors

TARGETS = sentences.TARGETS | evaluation.TARGETS | vectors.TARGETS | encoders.TARGETS | results.TARGETS
