"""Reading sweeps from Hydra's folders."""

from simcse_pl.reports.sweeps.seed_groups import read_sweeps
from tests.reports.invented import job


def test_jobs_are_in_the_order_of_their_numbers_with_their_options(write_sweep):
    jobs = [job(0.7 + 0.01 * n, seed=n, options={"+model.dropout": 0.1, "name": "'a b'"}) for n in range(11)]
    (sweep,) = read_sweeps({"mine": write_sweep("s", *jobs)})
    assert [one.name for one in sweep.jobs] == [str(n) for n in range(11)]
    assert sweep.jobs[3].options == {"model.dropout": "0.1", "name": "a b", "seed": "3"}
    assert (sweep.jobs[3].value("model"), sweep.jobs[3].value("optimizer.lr")) == ("minilm", "default")
    assert [run.best["spearman"] for run in sweep.results] == [0.7 + 0.01 * n for n in range(11)]
    assert (sweep.label, sweep.table, sweep.size) == ("mine", None, None)


def test_folders_with_the_same_table_and_size_are_one_sweep(write_sweep):
    folders = {
        "a": write_sweep("a", job(0.7, row="0.1"), job(row="0.2"), table="table_3_dropout", size="mini"),
        "b": write_sweep("b", job(0.7, row="0.1"), table="table_3_dropout", size="mini"),
        "c": write_sweep("c", job(0.7, row="0.1"), table="table_3_dropout", size="paper"),
        "d": write_sweep("d", job(0.7)),
    }
    assert [(s.label, s.table, s.size, [j.name for j in s.jobs]) for s in read_sweeps(folders)] == [
        ("a", "table_3_dropout", "mini", ["a/0", "a/1", "b/0"]),
        ("c", "table_3_dropout", "paper", ["c/0"]),
        ("d", None, None, ["d/0"]),
    ]
