"""A SentEval bundle of random sentences, and vectors of them."""

import random

import torch

WORDS = ["a", "the", "man", "dog", "guitar", "snow", "plays", "runs", "in", "on", "street", "prices", "moon", "never"]


def word_sums(sentences, vectors):
    """Return a vector of each sentence: the sum of those of WORDS [words, dim], the last ones weigh most."""
    rows = [[WORDS.index(word) for word in sentence.split()] for sentence in sentences]
    return torch.stack([torch.linspace(1, 2, len(row)) @ vectors[row] for row in rows])


def write_bundle(folder, size=30):
    """Write a SentEval bundle of STS12, STS13, STS-B, SICK-R, MR with `size` rows of each class, SST and MRPC."""
    generator = random.Random(0)

    def sentence(first=""):
        return " ".join([first, *generator.choices(WORDS, k=generator.randint(3, 9))]).strip()

    def pairs(count):
        firsts = [sentence() for _ in range(count)]  # half of them are used, twice each
        return [(firsts[i // 2], sentence(), f"{generator.uniform(0, 5):.1f}") for i in range(count)]

    files = {}
    subsets = [("STS12", "MSRpar", 12), ("STS12", "SMT", 20), ("STS13", "FNWN", 15)]
    for task, subset, count in (*subsets, ("STS13", "OnWN", 24), ("STS13", "headlines", 9)):
        rows = pairs(count)
        files[f"STS/{task}-en-test/STS.input.{subset}.txt"] = [f"{first}\t{second}" for first, second, _ in rows]
        files[f"STS/{task}-en-test/STS.gs.{subset}.txt"] = [score for _, _, score in rows]
    for split, sick, count in (("train", "train", 40), ("dev", "trial", 16), ("test", "test_annotated", 24)):
        rows = [f"g\tf\ty\t{i}\t{score}\t{first}\t{second}" for i, (first, second, score) in enumerate(pairs(count))]
        files[f"STS/STSBenchmark/sts-{split}.csv"] = rows
        rows = [f"{i}\t{first}\t{second}\t{score}\tNEUTRAL" for i, (first, second, score) in enumerate(pairs(count))]
        files[f"SICK/SICK_{sick}.txt"] = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tjudgment", *rows]
    for ending, first in (("pos", "guitar moon"), ("neg", "prices never")):
        files[f"MR/rt-polarity.{ending}"] = [sentence(first) for _ in range(size)]
    for split, count in (("train", 40), ("dev", 16), ("test", 24)):
        files[f"SST/binary/sentiment-{split}"] = [f"{sentence()}\t{i % 2}" for i in range(count)]
    for split, count in (("train", 40), ("test", 24)):
        rows = [f"{i % 2}\t1\t2\t{sentence()}\t{sentence()}" for i in range(count)]
        files[f"MRPC/msr_paraphrase_{split}.txt"] = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows]
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder
