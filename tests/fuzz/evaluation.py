"""Targets: the files of a SentEval bundle."""

from collections.abc import Sequence
from functools import partial

from simcse_pl.data.sts import load_sts_task
from simcse_pl.data.transfer import load_transfer_task
from tests.fuzz.engine import Target


def _sts(task: str, files: dict[str, Sequence[bytes]]) -> Target:
    return Target(files, partial(load_sts_task, name=task))


def _transfer(task: str, files: dict[str, Sequence[bytes]]) -> Target:
    return Target({f"{task}/{name}": own for name, own in files.items()}, partial(load_transfer_task, name=task))


_STSB = [b"g\tf\ty\t1\t2.500\tA dog.\tA cat.\n", b"g\tf\ty\t1\tnan\t\xff\tA cat.\textra\r\n"]
_SICK = [b"pair_ID\tsentence_A\tsentence_B\trelatedness_score\n1\tA dog.\tA cat.\t4.5\n"]
_SST = [b"a dog .\t1\nbad \xff .\t0\n"]
_MRPC = [b"\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\tA dog.\tA cat.\n"]
_TREC = [b"NUM:dist How far is it ?\nHUM:ind Who is \xff ?\n"]

TARGETS = {
    "stsb": _sts("STS-B", {"STS/STSBenchmark/sts-test.csv": _STSB}),
    "sick": _sts("SICK-R", {"SICK/SICK_test_annotated.txt": _SICK}),
    "sts12": _sts(
        "STS12",
        {
            "STS/STS12-en-test/STS.input.a.txt": [b"A dog.\tA cat.\nA.\tB.\textra\n"],
            "STS/STS12-en-test/STS.gs.a.txt": [b"2.5\n\n", b"1\n2\n"],
        },
    ),
    "mr": _transfer("MR", {"rt-polarity.pos": [b"good \xff\n"], "rt-polarity.neg": [b"bad\n\n"]}),
    "sst": _transfer("SST", {f"binary/sentiment-{split}": _SST for split in ("train", "dev", "test")}),
    "trec": _transfer("TREC", {"train_5500.label": _TREC, "TREC_10.label": _TREC}),
    "mrpc": _transfer("MRPC", {f"msr_paraphrase_{split}.txt": _MRPC for split in ("train", "test")}),
}
