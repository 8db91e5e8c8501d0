"""The order of answers, the file that keeps them, examples by seed, estimates and filters."""

import json
import threading
from pathlib import Path

import pytest
import torch
import yaml
from pydantic import ValidationError

from simcse_pl.data.synthesis.synthesizer import (
    CHECK,
    COPY,
    LENGTH,
    NEGATIVE,
    NO_ANSWER,
    POSITIVE,
    PROMPTS,
    UNCONFIRMED,
    Prompts,
    Synthesizer,
    filter_by_similarity,
)

CONTENT = yaml.safe_load(Path(PROMPTS).read_text())
SHORT = {"positive": ["p {sentence}"], "negative": ["n {sentence}"], "check": ["{sentence}|{hypothesis}"]}
EXAMPLES = [(f"sentence {i}", f"positive {i}", f"negative {i}") for i in range(20)]


class Model:
    """Answers the last message of each conversation by a function."""

    settings, batch_size, workers = {"model": "small"}, 1, 3

    def __init__(self, answer):
        self.reply, self.asked = answer, []

    def answer(self, batch):
        self.asked += [messages[-1]["content"] for messages in batch]
        return [(self.reply(messages[-1]["content"]), 10, 2) for messages in batch]


def make(tmp_path, answer, prompts=CONTENT | SHORT, examples=(), seed=1):
    return Synthesizer(Model(answer), Prompts(**prompts), examples, seed, tmp_path / "answers.jsonl")


def test_answers_are_in_the_order_of_the_questions(tmp_path):
    last = threading.Event()

    def answer(text):
        if text == "p 2":
            last.set()
        return text.upper() if last.wait(10) else ""

    assert make(tmp_path, answer).ask([(POSITIVE, str(i), "") for i in range(3)]) == ["P 0", "P 1", "P 2"]


def test_a_killed_process_continues_with_what_is_missing(tmp_path):
    questions = [(POSITIVE, str(i), "") for i in range(6)]

    def fail(text):
        if text == "p 3":
            raise KeyError
        return text.upper()

    with pytest.raises(KeyError):
        make(tmp_path, fail).ask(questions)
    path = tmp_path / "answers.jsonl"
    path.write_text(path.read_text()[:-9])  # the last line is not complete
    kept = [json.loads(line)["question"][1] for line in path.read_text().splitlines()[:-1] if line]
    model = make(tmp_path, str.upper)
    assert model.ask(questions) == [f"P {i}" for i in range(6)]
    assert sorted(model.model.asked) == [f"p {i}" for i in range(6) if str(i) not in kept]
    assert model.tokens == {"read": 10 * len(model.model.asked), "written": 2 * len(model.model.asked)}
    again = make(tmp_path, fail, seed=2)
    assert again.ask(questions) == [f"P {i}" for i in range(6)] and not again.model.asked
    other = make(tmp_path, str.lower)
    other.model.settings = {"model": "large"}
    assert other.ask(questions[:1]) == ["p 0"]


def test_examples_and_instructions_are_drawn_by_seed_and_sentence(tmp_path):
    def drawn(seed, sentence, kind=POSITIVE):
        messages = make(tmp_path, str, CONTENT, EXAMPLES, seed).messages((kind, sentence, ""))
        assert [message["role"] for message in messages] == ["user", "assistant"] * 5 + ["user"]
        assert messages[-1]["content"].endswith(f"Sentence: {sentence}")
        for user, assistant in zip(messages[:-1:2], messages[1::2], strict=True):
            assert user["content"].replace("sentence ", f"{kind} ").endswith(assistant["content"])
        return messages[0]["content"], [message["content"] for message in messages[1::2]]

    assert drawn(1, "It rains.") == drawn(1, "It rains.") != drawn(2, "It rains.")
    assert len({instruction for i in range(40) for instruction in [drawn(i, "x")[0].split("Sentence")[0]]}) == 4
    assert drawn(1, "It rains.", NEGATIVE)[1][0].startswith("negative")
    assert len(make(tmp_path, str, CONTENT, EXAMPLES).messages((CHECK, "a", "b"))) == 1


def test_the_estimate_counts_what_is_not_answered_yet(tmp_path):
    model = make(tmp_path, str.upper)
    assert model.estimate(["abcdef", "狗在跑"], check=False) == (4, (8 + 8 + 11 + 11) // 4, (6 + 9) * 2 // 4)
    model.ask([(POSITIVE, "abcdef", "")])
    assert model.estimate(["abcdef", "狗在跑"], check=True)[0] == 3 + 4


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
    checks = {"You are swimming": "Neutral", "I stand": "**Entailment**"}

    def answer(text):
        if "|" in text:
            hypothesis = text.partition("|")[2]
            return checks.get(hypothesis) or ("Contradiction." if hypothesis == "No dog runs" else "entailment")
        return answers[text[2:]][text[0] == "n"]

    model = make(tmp_path, answer)
    first = ("A dog runs", "A dog is running", "No dog runs")
    others = [("You swim", *answers["You swim"]), ("I walk", *answers["I walk"])]
    assert model.triplets([*answers], 3, check=False) == [first, *others]
    assert model.left_out == {NO_ANSWER: 2, COPY: 2, LENGTH: 1}
    checked = make(tmp_path, answer)
    assert checked.triplets([*answers], 3, check=True) == [first]
    assert checked.left_out[UNCONFIRMED] == 2
    assert "You swim|You sink" not in checked.model.asked, "its positive is wrong"


def test_similarities_are_limited():
    angles = {"a": 0.0, "near": 0.3, "far": 1.4}

    def encode(texts):
        return torch.tensor([[torch.tensor(angles[x]).cos(), torch.tensor(angles[x]).sin()] for x in texts])

    triplets = [("a", "near", "far"), ("a", "far", "far"), ("a", "near", "near")]
    assert filter_by_similarity(encode, triplets, 0.9, 0.5) == triplets[:1]
    assert filter_by_similarity(encode, triplets, 0.9, 2) == [triplets[0], triplets[2]]


def test_instructions_without_the_sentence_are_an_error():
    with pytest.raises(ValidationError, match="sentence"):
        Prompts(**CONTENT | {"positive": ["Write it in other words."]})
