"""A small SentEval bundle with what is odd in its files; tests/fidelity compares scores with SentEval's own reader."""

import pytest

SUBSET = "One {}.\tTwo.\nThree.\tFour.\textra\n\u0085x\ty\n"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
FILES = {
    **{f"STS/STS15-en-test/STS.input.{subset}.txt": SUBSET.format(subset) for subset in "ba"},
    **{f"STS/STS15-en-test/STS.gs.{subset}.txt": "4.5\n\n0\n" for subset in "ba"},
    "STS/STS15-en-test/STS.output.a.txt": "not read",
    **{f"STS/STSBenchmark/sts-{split}.csv": f'g\tf\ty\t1\t5.000\tA "{split}.\tB.\n' for split in ("dev", "test")},
    "MR/rt-polarity.pos": "a  good one \nfine\n",
    "MR/rt-polarity.neg": "caf\u00e9 \u0085 bad\nno\n".encode("latin-1"),
    "CR/custrev.pos": "works\n\nvery well\n",
    "CR/custrev.neg": "broke\n",
    **{f"SST/binary/sentiment-{split}": "great\t1\n" for split in ("train", "dev", "test")},
    "TREC/train_5500.label": "NUM:dist How far is it ?\nHUM:ind Who ?\n",
    "TREC/TREC_10.label": "LOC:city Where\t?\n",
    "MRPC/msr_paraphrase_train.txt": f"\ufeff{MRPC}\n1\t5\t6\tA b\tA  c\n",
    "MRPC/msr_paraphrase_test.txt": f'{MRPC}\n0\t5\t6\tHe said "x\ty\r\n',
}


@pytest.fixture
def bundle(tmp_path):
    """A bundle with one to three pairs or rows in each file."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path
