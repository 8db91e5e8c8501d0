"""Language models against transformers: a cross-encoder, a chat model, and a server with faults."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from simcse_pl.tools.language_models import Answer, CrossEncoder, LocalModel, Server, rescore
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES
from tests.support.chat_server import chat_server


def test_scores_are_the_logits_of_the_pairs(cross_encoder):
    pairs = [(first, second) for first in SENTENCES[:3] for second in SENTENCES[3:]]
    scores = CrossEncoder(str(cross_encoder), batch_size=4).score(pairs)
    classify = pipeline("text-classification", str(cross_encoder), function_to_apply="none", device="cpu")
    expected = [classify({"text": first, "text_pair": second})["score"] for first, second in pairs]
    assert scores == pytest.approx(expected, abs=1e-5) and max(scores) - min(scores) > 0.1


def test_a_decoder_that_names_no_pad_token_scores_pairs_together_as_alone(make_model, tmp_path):
    source = make_model("qwen3")
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=1)
    model.config.pad_token_id = None
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path)
    encoder = CrossEncoder(str(tmp_path))
    pairs = [(first, second) for first, second in zip(SENTENCES[:3], SENTENCES[3:6], strict=True)]
    assert encoder.score(pairs) == pytest.approx([encoder.score([pair])[0] for pair in pairs], abs=1e-5)


def test_a_model_without_a_score_is_an_error(make_model):
    with pytest.raises(UserError, match="has 2 logits"):
        CrossEncoder(str(make_model("bert")))


def test_negatives_score_below_the_positive_by_the_margin():
    values = {"p": 5.0, "a": 4.9, "b": 4.0, "c": 3.0, "d": 4.6, "e": 9.0}
    rows = [("x", "p", "a", "b", "c", "d"), ("y", "p", "e", "a", "b"), ("z", "b", "a", "c")]
    score = lambda pairs: [values[other] for _, other in pairs]  # noqa: E731
    kept, left_out = rescore(score, rows, negatives=2, margin=0.5)
    assert kept == [("x", "p", "b", "c", "5", "4", "3")] and left_out == 5
    assert [row[2:4] for row in rescore(score, rows, 2, -10)[0]] == [("a", "b"), ("e", "a"), ("a", "c")]


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
    assert Server(server.url, SETTINGS, "secret", 1).answer([QUESTION]) == [("It rains. Yes.", 7, 3, False)]
    request = ("/v1/chat/completions", "Bearer secret", SETTINGS | {"messages": QUESTION})
    assert server.asked == [request] * (2 if status else 1)


@pytest.mark.parametrize(("status", "content"), [(401, "bad key"), (404, "no model small"), (200, "<html>")])
def test_a_wrong_key_model_or_address_is_an_error_at_once(server, status, content):
    server.faults = [(status, content)] * 2
    with pytest.raises(UserError, match=content):
        Server(server.url, SETTINGS, None, 1).answer([QUESTION])
    with pytest.raises(UserError, match="no answer from --server.*refused"):
        Server("http://127.0.0.1:9/v1", SETTINGS, None, 1).answer([QUESTION])
    assert len(server.asked) == 1 + (status == 200)


def test_a_server_that_knows_no_thinking_is_asked_without_it(server):
    server.faults = [(400, "unknown parameter: chat_template_kwargs")]
    model = Server(server.url, SETTINGS | {"chat_template_kwargs": {"enable_thinking": False}}, None, 1)
    for _ in range(2):
        assert model.answer([QUESTION]) == [("It rains. Yes.", 7, 3, False)]
    assert ["chat_template_kwargs" in body for _, _, body in server.asked] == [True, False, False]


def test_content_that_is_no_text_is_no_answer(server):
    counts = '"usage": {"prompt_tokens": null}'
    server.faults = [(200, f'{{"choices": [{{"message": {{"content": 3}}, "finish_reason": "stop"}}], {counts}}}')]
    assert Server(server.url, SETTINGS, None, 1).answer([QUESTION]) == [("", 0, 0, False)]


def test_parts_of_a_content_are_one_text(server):
    parts = (
        '[{"type": "thinking", "thinking": []}, {"type": "text", "text": "It "}, {"type": "text", "text": "pours."}]'
    )
    server.faults = [(200, f'{{"choices": [{{"message": {{"content": {parts}}}}}]}}')]
    assert Server(server.url, SETTINGS, None, 1).answer([QUESTION]) == [("It pours.", 0, 0, False)]


def test_a_damaged_reply_is_asked_for_again_and_then_left_out(server, caplog):
    model, good = Server(server.url, SETTINGS, None, 1), ("It rains. Yes.", 7, 3, False)
    half = (200, '{"choices": [')
    server.faults = [half]
    assert model.answer([QUESTION]) == [good] and not caplog.messages
    server.faults = [half, (200, '{"choices": []}')]
    assert model.answer([QUESTION]) == [("", 0, 0, False)] and model.answer([QUESTION]) == [good]
    assert len(caplog.messages) == 1 and len(server.asked) == 2 + 2 + 1


@pytest.mark.parametrize("address", ["http://me:secret@127.0.0.1:9/v1", "htp://me:secret@127.0.0.1/v1"])
def test_no_message_has_a_password_or_a_key(address, server):
    with pytest.raises(UserError, match="no answer from --server htt?p://127.0.0.1") as caught:
        Server(address, SETTINGS, "key", 1).answer([QUESTION])
    server.faults = [(401, "no")]
    with pytest.raises(UserError, match="--server http://127.0.0.1.* returns 401") as other:
        Server(server.url.replace("//", "//me:secret@"), SETTINGS, "key\r", 1).answer([QUESTION])
    with pytest.raises(UserError, match="^OPENAI_API_KEY contains") as last:
        Server(server.url, SETTINGS, "secret\rkey", 1)
    assert not any("secret" in str(error.value) for error in (caught, other, last))


def test_a_rejected_request_and_an_answer_without_an_end_are_empty(server, caplog):
    server.faults = [(400, "filtered"), (400, "filtered too"), (200, CUT)]
    model = Server(server.url, SETTINGS, None, 1)
    assert [model.answer([QUESTION]) for _ in range(3)] == [[Answer()], [Answer()], [Answer("", 5, 0, cut=True)]]
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
    turns = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}assistant:"
    tokenizer.chat_template = "{{ start }}" + turns
    tokenizer.save_pretrained(tmp_path)
    settings = {"model": str(tmp_path), "temperature": 0, "max_tokens": 8, "chat_template_kwargs": {"start": "<s>"}}
    local = LocalModel(settings, "cpu", 2)
    answers = local.answer([[{"role": "user", "content": text}] for text in texts])
    assert [answer.text for answer in answers] == [tokenizer.decode(written[0][:3]), ""]
    assert [answer.cut for answer in answers] == [False, True]
    assert [answer.read for answer in answers] == [len(prompt) for prompt in prompts]
