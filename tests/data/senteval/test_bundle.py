"""What STS and transfer tasks share: errors of damaged and missing files."""

import pytest

from simcse_pl.data.senteval.sts_sets import STS_TASKS, NotInBundleError, load_sts_task
from simcse_pl.data.senteval.transfer_sets import load_transfer_task
from simcse_pl.utils.errors import UserError


def load(bundle, task):
    return (load_sts_task if task in STS_TASKS else load_transfer_task)(bundle, task)


@pytest.mark.parametrize(
    ("task", "path", "content", "message"),
    [
        ("STS12", "STS.gs.a.txt", b"4.5\n", "STS.gs.a.txt has 1 lines and STS.input.a.txt 3: one of them is trunc"),
        ("STS12", "STS.gs.a.txt", b"4.5\nmany\n0\n", "STS.input.a.txt, line 2: it should have two sentences and"),
        ("STS12", "STS.gs.a.txt", b"4.5\n\n-1\n", "STS.input.a.txt, line 3: .* a score from 0 to 5"),
        ("STS12", "STS.input.a.txt", b"One.\n\n\n", "line 1: it should have two sentences"),
        ("STS-B", "sts-test.csv", b"a\tb\tc\n", "sts-test.csv, line 1: it should have two sentences"),
        ("SST", "sentiment-dev", b"fine\t2\n", "sentiment-dev, line 1: .* one of the labels 0, 1"),
        ("TREC", "TREC_10.label", b"HUM:ind\n", "TREC_10.label, line 1: it should have a sentence"),
        ("MRPC", "msr_paraphrase_test.txt", b"h\n1\t2\t3", "msr_paraphrase_test.txt, line 2: it should have a"),
    ],
)
def test_damaged_files_are_errors(task, path, content, message, bundle):
    damaged = next(bundle.rglob(f"STS12*/{path}" if task == "STS12" else path))
    damaged.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load(bundle, task)
    assert not isinstance(error.value, NotInBundleError)
