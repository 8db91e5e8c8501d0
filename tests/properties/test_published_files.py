"""Files of STS and of the transfer tasks with any bytes are read, or are an error of one line."""

from hypothesis import given
from hypothesis import strategies as st

from simcse_pl.data.senteval.sts_sets import load_sts_task
from simcse_pl.data.senteval.transfer_sets import TRANSFER_TASKS, load_transfer_task
from simcse_pl.utils.errors import UserError

PIECES = st.binary(max_size=8) | st.sampled_from([b"\n", b"\t", b"1", b"a b", b"\xe9", b"NUM:x y"])
BYTES = st.lists(PIECES).map(b"".join)
FILES = {
    "STS12": ("STS/STS12-en-test/STS.input.a.txt", "STS/STS12-en-test/STS.gs.a.txt"),
    "STS-B": ("STS/STSBenchmark/sts-test.csv",),
    "SICK-R": ("SICK/SICK_test_annotated.txt",),
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "SST": tuple(f"SST/binary/sentiment-{split}" for split in ("train", "dev", "test")),
    "TREC": ("TREC/train_5500.label", "TREC/TREC_10.label"),
    "MRPC": ("MRPC/msr_paraphrase_train.txt", "MRPC/msr_paraphrase_test.txt"),
}


@given(task=st.sampled_from(list(FILES)), content=BYTES, other=BYTES)
def test_any_bytes_give_rows_or_an_error_of_one_line(tmp_path_factory, task, content, other):
    root = tmp_path_factory.mktemp("bundle")
    for i, name in enumerate(FILES[task]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(other if i else content)
    try:
        loaded = (load_transfer_task if task in TRANSFER_TASKS else load_sts_task)(root, task)
    except UserError:
        return
    for pair in [] if task in TRANSFER_TASKS else loaded.pairs:
        assert pair.first.strip() and pair.second.strip() and pair.score < float("inf")
