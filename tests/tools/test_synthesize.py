"""`simcse synthesize` with a server on loopback."""

import pytest

from simcse_pl.data.rows import read_rows
from tests.chat_server import chat_server


def test_triplets_of_a_server_can_be_trained_on(command, encoder, sentences, tmp_path, monkeypatch):
    out, texts = tmp_path / "triplets.csv", sentences.read_text().splitlines()
    sentences.write_text("\n".join([*texts, texts[0]]))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with chat_server() as server:
        given = ["synthesize", sentences, out, "--server", server.url, "--model", "small", "--check"]
        given += ["--settings", '{"temperature": null, "top_p": 0.9}', "--workers", "2"]
        planned = command(*given, "--price", "1e6", "0", "--dry-run").out
        tokens = int(planned.split("about ")[1].split()[0])
        assert f"at most {4 * len(texts)} requests" in planned and f"price: {tokens}.00" in planned
        assert not server.asked and not out.exists()
        printed = command(*given).out
        asked = len(server.asked)
        body = server.asked[0][2]
        rows = read_rows(out, ["anchor", "positive", "negative"])
        cosines = [float(command("similarity", *encoder, row[0], row[2]).out) for row in rows]
        limit = sum(sorted(cosines)[3:5]) / 2
        filtered = command(*given, "--encoder", *encoder, "--max-negative", limit).out
        assert len(server.asked) == asked == 4 * len(texts), "all answers are kept"
    assert {key for _, key, _ in server.asked} == {"Bearer secret"}
    assert (body["model"], body["top_p"], body["max_tokens"]) == ("small", 0.9, 128) and "temperature" not in body
    assert rows == [(x, f"{x} Yes.", f"{x} No.") for x in texts]
    assert read_rows(out) == [row for row, cosine in zip(rows, cosines, strict=True) if cosine < limit]
    assert "the same sentence" in printed
    assert f"{7 * asked} tokens read and {3 * asked} written" in printed
    assert f"{len(texts)} rows in {out}" in printed
    assert "a cosine beyond" in filtered and f"4 rows in {out}" in filtered


@pytest.mark.parametrize("prompts", ["positive: [Write]", "- a", "{"])
def test_a_file_of_prompts_that_is_not_valid_is_one_line(command, sentences, tmp_path, prompts):
    (tmp_path / "own.yaml").write_text(prompts)
    given = ["--server", "http://localhost:1/v1", "--model", "m", "--prompts", tmp_path / "own.yaml"]
    assert "own.yaml" in command("synthesize", sentences, tmp_path / "out.csv", *given, status=2).err
