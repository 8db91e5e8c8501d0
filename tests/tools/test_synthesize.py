"""Triplets of a language model: kept answers, what is drawn by seed, the estimate, the filters, and the command."""

import json
import time
from pathlib import Path

import pytest
import yaml

from simcse_pl.data.rows import read_rows
from simcse_pl.tools.language_models import Answer
from simcse_pl.tools.synthesize import POSITIVE, PROMPTS, Prompts, Synthesizer
from simcse_pl.utils.errors import UserError
from tests.support.chat_server import chat_server

CONTENT = yaml.safe_load(Path(PROMPTS).read_text())
SHORT = {"positive": ["p {sentence}"], "negative": ["n {sentence}"], "check": ["{sentence}|{hypothesis}"]}
QUESTIONS = [(POSITIVE, str(i), "") for i in range(6)]


class Model:
    """Answers the last message of each conversation by a function."""

    settings, batch_size, workers = {"model": "small"}, 1, 3

    def __init__(self, reply):
        self.reply, self.asked = reply, []

    def answer(self, batch):
        self.asked += [messages[-1]["content"] for messages in batch]
        return [Answer(self.reply(messages[-1]["content"]), 10, 2) for messages in batch]


def make(tmp_path, reply, prompts=CONTENT | SHORT, seed=1):
    return Synthesizer(Model(reply), Prompts(**prompts), seed, tmp_path / "answers.jsonl")


def test_a_killed_process_continues_with_what_is_missing(tmp_path):
    def fail(text):
        if text == "p 3":
            raise KeyError
        return text.upper()

    with pytest.raises(KeyError):
        make(tmp_path, fail).ask(QUESTIONS)
    path = tmp_path / "answers.jsonl"
    path.write_text('5\nnull\n{"key": 1}\n' + path.read_text()[:-9])  # the last line is not complete
    kept = [json.loads(line)["question"][1] for line in path.read_text().splitlines()[3:-1] if line]
    second = make(tmp_path, str.upper)
    assert second.ask(QUESTIONS) == [f"P {i}" for i in range(6)]
    assert sorted(second.model.asked) == [f"p {i}" for i in range(6) if str(i) not in kept]
    missing = 6 - len(kept)
    assert second.tokens == {"read": 10 * missing, "written": 2 * missing, "answers": missing, "cut": 0}
    third = make(tmp_path, fail)
    assert third.ask(QUESTIONS) == [f"P {i}" for i in range(6)] and not third.model.asked
    third.model.settings = {"model": "small", "max_tokens": 9, "chat_template_kwargs": {"enable_thinking": False}}
    assert third.ask(QUESTIONS) == [f"P {i}" for i in range(6)] and not third.model.asked
    third.model.settings = {"model": "large"}
    assert third.ask(QUESTIONS[:1]) == ["P 0"] and third.model.asked == ["p 0"]


def test_instructions_are_drawn_by_seed_and_sentence(tmp_path):
    def drawn(seed):
        (message,) = make(tmp_path, str, CONTENT, seed).messages((POSITIVE, "It rains.", ""))
        return message["content"]

    assert drawn(1) == drawn(1) != drawn(2)
    expected = {text.replace("{sentence}", "It rains.") for text in CONTENT["positive"]}
    assert {drawn(seed) for seed in range(40)} == expected


def test_the_estimate_counts_what_is_not_answered_yet(tmp_path):
    synthesizer = make(tmp_path, str.upper)
    assert synthesizer.estimate(["abcdef", "狗在跑"], check=False) == (0, 4, (8 + 8 + 11 + 11) // 4, (6 + 9) * 2 // 4)
    synthesizer.ask([(POSITIVE, "abcdef", "")])
    assert synthesizer.estimate(["abcdef", "狗在跑"], check=True)[:2] == (1, 3 + 4)


def test_filters_leave_out_what_is_no_triplet_and_count_it(tmp_path):
    answers = {
        "A dog runs": ("Sure, here it is:\n\n“A dog is running”", "<think>Hm.\nA cat?</think>\nNo dog runs"),
        "He sleeps": ("", "He is awake"),
        "It rains": ("I'm sorry, but I cannot rewrite this.", "It is dry"),
        "She reads": ("she reads!", "She cooks"),
        "They sing": ("A dog is running.", "They are silent"),
        "We eat": ("We eat and we eat and we eat", "We fast"),
        "You swim": ("You are swimming", "You sink"),
        "I walk": ("I am walking", "I stand"),
    }
    checks = {"You are swimming": "Neutral", "I stand": "**Entailment**", "No dog runs": "Contradiction: it does."}

    def reply(text):
        hypothesis = text.partition("|")[2]
        return checks.get(hypothesis, "entailment") if hypothesis else answers[text[2:]][text[0] == "n"]

    first = ("A dog runs", "A dog is running", "No dog runs")
    others = [("You swim", *answers["You swim"]), ("I walk", *answers["I walk"])]
    synthesizer = make(tmp_path, reply)
    assert synthesizer.triplets([*answers], check=False) == [first, *others]
    assert [*synthesizer.left_out.values()] == [1, 1, 2, 1]
    checked = make(tmp_path, reply)
    assert checked.triplets([*answers], check=True) == [first] and checked.left_out.total() == 5 + 2
    assert "You swim|You sink" not in checked.model.asked, "its positive is wrong"


LOST = [Answer("", 10, 128, cut=True), Answer("<think>Perhaps", 10, 40), Answer("", 10, 9)]


@pytest.mark.parametrize("lost", LOST, ids=["cut", "thoughts", "empty"])
def test_cut_answers_end_a_command_and_are_paid_for_once(lost, tmp_path, monkeypatch):
    def make_cut(limit, divisor):
        def answer(self, batch):
            time.sleep(0.01)  # no model answers faster than the answers are read
            self.asked += (texts := [messages[-1]["content"] for messages in batch])
            return [Answer(text.upper(), 10, 2) if int(text.split()[-1]) % divisor else lost for text in texts]

        monkeypatch.setattr(Model, "answer", answer)
        monkeypatch.setattr(Model, "settings", {"model": "small", "max_tokens": limit})
        return make(tmp_path, str.upper)

    sentences = [f"number {i}" for i in range(10, 99)]
    first = make_cut(128, 7)
    with pytest.raises(UserError, match=r"3 of 2\d answers are cut by max_tokens, or have no text: set --settings"):
        first.triplets(sentences, check=False)
    assert len(first.model.asked) < 40 and len(first.answers) == first.tokens["answers"]
    for asked in (["n number 14", "n number 15"], []):
        again = make_cut(128, 7)
        again.triplets(["number 14", "number 15"], check=False)
        assert sorted(again.model.asked) == asked
        assert again.left_out == {"an answer cut by max_tokens of --settings, or without text": 1}
    longer = make_cut(1024, 99)
    assert longer.triplets(["number 14"], check=False) == [("number 14", "P NUMBER 14", "N NUMBER 14")]


def test_triplets_of_a_server_can_be_trained_on(command, encoder, sentences, tmp_path, monkeypatch):
    out, texts = tmp_path / "new" / "triplets.csv", sentences.read_text().splitlines()
    sentences.write_text("\n".join([*texts, texts[0]]))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with chat_server() as server:
        given = ["synthesize", sentences, out, "--server", server.url, "--model", "small", "--check"]
        given += ["--settings", '{"temperature": null, "top_p": 0.9}', "--workers", "2"]
        planned = command(*given, "--price", "1e6", "0", "--dry-run").out
        tokens = int(planned.split("about ")[1].split()[0])
        assert f"at most {4 * len(texts)} requests; 0 answers" in planned
        assert f"to write, at most {128 * 4 * len(texts)}\nprice: about {tokens}.0000, at most {tokens}.0000" in planned
        assert not server.asked and not out.exists()
        printed = command(*given).out
        asked = len(server.asked)
        body = server.asked[0][2]
        rows = read_rows(out, ["anchor", "positive", "negative"])
        cosines = [float(command("similarity", *encoder, row[0], row[2]).out) for row in rows]
        limit = sum(sorted(cosines)[3:5]) / 2
        assert "give both" in command(*given, "--max-negative", limit, status=2).err
        filtered = command(*given, "--encoder", *encoder, "--max-negative", limit).out
        assert len(server.asked) == asked == 4 * len(texts), "all answers are kept"
        again = command(*given, "--dry-run").out
    assert f"at most 0 requests; {asked} answers" in again and "about 0 tokens" in again
    assert {key for _, key, _ in server.asked} == {"Bearer secret"}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
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
