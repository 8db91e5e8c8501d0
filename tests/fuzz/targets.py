"""All targets by their names."""

from tests.fuzz import configs, encoders, evaluation, results, sentences, vectors

TARGETS = {
    **sentences.TARGETS,
    **evaluation.TARGETS,
    **vectors.TARGETS,
    **encoders.TARGETS,
    **results.TARGETS,
    **configs.TARGETS,
}
