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
        ("STS12", "STS.gs.a.txt", b"4.5\nmany\n0\n", "STS.input.a.txt, line 2: the score is 'many', not a number"),
        ("STS12", "STS.gs.a.txt", b"4.5\n\n-1\n", "STS.input.a.txt, line 3: the score is -1, and scores are from 0 t"),
        ("STS12", "STS.gs.a.txt", b"5.5\n\n0\n", "line 1: the score is 5.5, and scores are from 0 to 5"),
        ("STS12", "STS.gs.a.txt", None, "no file .*STS.gs.a.txt"),
        ("STS12", "STS.input.a.txt", b"One.\n\n\n", "line 1: one sentence where there should be two"),
        ("STS12", "STS.input.a.txt", b"One.\t\n\n\n", "line 1: a sentence is empty"),
        ("STS-B", "sts-test.csv", b"a\tb\tc\n", "sts-test.csv, line 1: 3 columns where there should be 7"),
        ("STS-B", "sts-test.csv", b"", "sts-test.csv has no rows"),
        ("SICK-R", "SICK_test_annotated.txt", b"pair_ID\tA\tB\tscore\n", "SICK_test_annotated.txt has no rows"),
        ("MR", "rt-polarity.pos", b"\n\n", "rt-polarity.pos has no sentences"),
        ("SST", "sentiment-dev", b"fine\t2\n", "sentiment-dev, line 1: '2' is not a label; it should be one of 0"),
        ("TREC", "TREC_10.label", b"WHO:x Who ?\n", "TREC_10.label, line 1: 'WHO' is not a label"),
        ("TREC", "TREC_10.label", b"HUM:ind\n", "TREC_10.label, line 1: a sentence is empty"),
        ("MRPC", "msr_paraphrase_test.txt", b"h\n1\t2\t3\tA b", "msr_paraphrase_test.txt, line 2: 4 columns"),
    ],
)
def test_damaged_and_missing_files_are_errors_of_one_line(task, path, content, message, bundle):
    damaged = next(bundle.rglob(f"STS12*/{path}" if task == "STS12" else path))
    damaged.unlink() if content is None else damaged.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load(bundle, task)
    assert not isinstance(error.value, NotInBundleError)
