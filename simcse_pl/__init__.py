"""SimCSE: contrastive learning of sentence embeddings (Gao, Yao and Chen, EMNLP 2021)."""

__version__ = "0.1.0"
