"""A small SentEval bundle."""

import pytest

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
FILES = {
    **{
        f"STS/STS{year}-en-test/STS.input.{subset}.txt": f"One {subset}.\tTwo.\nThree.\tFour.\textra\n\u0085x\ty\n"
        for year in range(12, 17)
        for subset in "ba"
    },
    **{f"STS/STS{year}-en-test/STS.gs.{subset}.txt": "4.5\n\n0\n" for year in range(12, 17) for subset in "ba"},
    "STS/STS12-en-test/STS.output.a.txt": "not read",
    **{
        f"STS/STSBenchmark/sts-{split}.csv": f'genre\tfile\tyear\t0001\t5.000\tA "{split}.\tB.\n'
        for split in ("dev", "test")
    },
    "SICK/SICK_test_annotated.txt": f"{SICK}\r\n6\tA b\tC d\t3.3\tNEUTRAL\r\n",
    "MR/rt-polarity.pos": "a  good one \nfine\n",
    "MR/rt-polarity.neg": "caf\u00e9 \u0085 bad\nno\n".encode("latin-1"),
    "CR/custrev.pos": "works\n\nvery well\n",
    "CR/custrev.neg": "broke\n",
    "SUBJ/subj.objective": "he goes\n",
    "SUBJ/subj.subjective": "lovely\n",
    "MPQA/mpqa.pos": "peace\n",
    "MPQA/mpqa.neg": "war\n",
    "SST/binary/sentiment-train": "not so good\t0\ngood\t1\n",
    "SST/binary/sentiment-dev": "bad\t0\n",
    "SST/binary/sentiment-test": "great\t1\n",
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
