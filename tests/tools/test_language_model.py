"""Answers of a server, its faults, and answers of a model of transformers against a loop over its logits."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from simcse_pl.tools.language_model import LocalModel, Server
from simcse_pl.utils.errors import UserError
from tests.chat_server import chat_server

QUESTION = [{"role": "user", "content": "Sentence: It rains."}]
SETTINGS = {"model": "small", "temperature": 0.5}
CUT = '{"choices": [{"message": {"content": "It"}, "finish_reason": "length"}], "usage": {"prompt_tokens": 5}}'


@pytest.fixture
def server():
    with chat_server() as server:
        yield server


@pytest.mark.parametrize("status", [None, 429, 503])
def test_a_server_gets_settings_and_key_and_is_asked_again_if_it_is_busy(server, status):
    server.faults = [(status, "later")] if status else []
    assert Server(server.url, SETTINGS, "secret", 1).answer([QUESTION]) == [("It rains. Yes.", 7, 3)]
    request = ("/v1/chat/completions", "Bearer secret", SETTINGS | {"messages": QUESTION})
    assert server.asked == [request] * (2 if status else 1)


@pytest.mark.parametrize(("status", "content"), [(401, "bad key"), (404, "no model small"), (200, "<html>")])
def test_a_wrong_key_model_or_address_is_an_error_at_once(server, status, content):
    server.faults = [(status, content)]
    with pytest.raises(UserError, match=content):
        Server(server.url, SETTINGS, None, 1).answer([QUESTION])
    with pytest.raises(UserError, match="no answer from --server.*refused"):
        Server("http://127.0.0.1:9/v1", SETTINGS, None, 1).answer([QUESTION])
    assert len(server.asked) == 1


def test_a_rejected_request_and_an_answer_without_an_end_are_empty(server, caplog):
    server.faults = [(400, "filtered"), (400, "filtered too"), (200, CUT)]
    model = Server(server.url, SETTINGS, None, 1)
    assert [model.answer([QUESTION]) for _ in range(3)] == [[("", 0, 0)], [("", 0, 0)], [("", 5, 0)]]
    assert len(caplog.messages) == 1 and "400 filtered" in caplog.text


def test_a_local_model_takes_the_most_probable_tokens(make_model, tmp_path):
    folder = make_model("llama", initializer_range=0.5)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    texts = ["Two dogs run.", "Nobody answered, if it had no butter."]
    prompts = [tokenizer(f"<s>user: {text} assistant:", add_special_tokens=False).input_ids for text in texts]
    written = [[], []]
    for prompt, tokens in zip(prompts, written, strict=True):
        while len(tokens) < 8:
            tokens.append(model(torch.tensor([prompt + tokens])).logits[0, -1].argmax().item())
    model.generation_config.eos_token_id = end = written[0][2]
    assert end not in written[0][:2] + written[1], "the second answer has no end"
    model.save_pretrained(tmp_path)
    tokenizer.chat_template = "<s>{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}assistant:"
    tokenizer.save_pretrained(tmp_path)
    local = LocalModel({"model": str(tmp_path), "temperature": 0, "max_tokens": 8}, "cpu", 2)
    answers = local.answer([[{"role": "user", "content": text}] for text in texts])
    assert [text for text, _, _ in answers] == [tokenizer.decode(written[0][:3]), ""]
    assert [read for _, read, _ in answers] == [len(prompt) for prompt in prompts]
