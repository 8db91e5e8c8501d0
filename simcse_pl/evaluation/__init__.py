"""Measuring any encoder: each protocol is given `encode`, sentences in and vectors [n, dim] out."""
