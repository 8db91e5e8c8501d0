"""Token ids that the official code of published methods makes of sentences, in training and afterwards."""

import random
import string
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch

from benchmarks.fidelity.common import Repository, save_bpe, tokenizer
from benchmarks.fidelity.templates import COT_BERT, FIRST, ROBERTA, SECOND, SETTINGS, set_templates, template_options

SENTENCES = ["A man plays a guitar.", "Two dogs run in the snow", "Why is it red?", 'He said "no"', "the dog !"]
CODE = {
    "simcse": ("princeton-nlp/SimCSE", "49fa580"),
    "mixcse": ("BDBC-KG-NLP/MixCSE_AAAI2022", "884145e"),
    "diffcse": ("voidism/DiffCSE", "f724b2c"),
    "rankcse": ("perceptiveshawty/RankCSE", "17c5226"),
    "gs_infonce": ("caskcsg/sentemb", "5eeec55", "gsInfoNCE"),
    "esimcse": ("caskcsg/sentemb", "5eeec55", "ESimCSE"),
    "promptbert": ("kongds/Prompt-BERT", "690ba6e"),
    "cot_bert": ("ZBWpro/CoT-BERT", "3aa7bb4"),
    "sncse": ("Sense-GVT/SNCSE", "faa013e"),
    "prompteol": ("kongds/scaling_sentemb", "8567aa0"),
    "cards": ("alibaba/SimCSE-with-CARDS", "8e038a0"),
}
_FLAGS = dict.fromkeys(("mask_embedding_sentence_autoprompt", "embedding_only", "remove_continue_word"), False)
_LIMITS = {"data_args": Namespace(max_seq_length=32, pad_to_max_length=False), "defaultdict": defaultdict}
_REPEATED = {"model_args": Namespace(dup_type="bpe", dup_rate=0.32), "random": random}
_AS_TEXT = {"bert": [], "roberta": ["model.template_as_text=test_only"]}


def records(folders: Path) -> Iterator[dict[str, Any]]:
    """Yield the token ids of each method, with WordPiece and with byte-level BPE."""
    code = {method: Repository(folders, *where) for method, where in CODE.items()}
    for name in ("bert", "roberta"):
        for method in ("simcse", "mixcse", "diffcse", "rankcse", "gs_infonce", "esimcse"):
            random.seed(3)
            rows = training(code[method], name, **_REPEATED if method == "esimcse" else {})
            yield record(method, name, [], rows, test=evaluated(code[method], name))
        yield prompted("promptbert", code["promptbert"], name, ROBERTA if name == "roberta" else [FIRST, SECOND])
        cot_bert = [text.replace('"|"', "'| '").replace("[MASK]", "<mask>") + " " for text in COT_BERT]
        yield prompted("cot_bert", code["cot_bert"], name, cot_bert if name == "roberta" else COT_BERT)
        yield sncse(code["sncse"], name)
    periods = [f'This sentence : "{sentence}" means in one word:"' for sentence in SENTENCES] * 5
    save_bpe("bpe", periods, 320)  # a period and a quotation mark are one token, as in OPT's vocabulary
    for name in ("bert", "bpe"):
        yield prompteol(code["prompteol"], name)
    yield cards(code["cards"])


def record(method: str, name: str, options: list[str], rows: Sequence[Any], **after: Any) -> dict[str, Any]:
    """Return the ids of the views of all rows of training in turn, and those of the sentences afterwards."""
    options = options if "experiment=" in str(options) else [f"method={method}", *options]
    pad, ids = tokenizer(name).pad_token_id, {"training": [view for row in rows for view in row], **after}
    without = {part: [[token for token in view if token != pad] for view in views] for part, views in ids.items()}
    return {
        "method": method,
        "tokenizer": name,
        "options": options,
        "views": len(rows[0]),
        "sentences": SENTENCES,
    } | without


def training(code: Repository, name: str, path: str = "train.py", **given: object) -> Sequence[Any]:
    """Return what the script of training makes of the sentences, each of which is its own positive."""
    columns = {"sent0_cname": "sent0", "sent1_cname": "sent0", "sent2_cname": None}
    prepare = code.nested(path, "prepare_features", **{"tokenizer": tokenizer(name)} | _LIMITS | columns | given)
    return prepare({"sent0": [*SENTENCES]})["input_ids"]


def model(input_ids: torch.Tensor, **inputs: object) -> None:
    """Stand for a model that ends as soon as it has its inputs."""
    raise StopIteration(input_ids.tolist())


def read(run: Callable[..., object], *given: object, **options: object) -> Sequence[Any]:
    """Return the ids that a function gives to `model`."""
    try:
        run(*given, **options)
    except StopIteration as inputs:
        ids: Sequence[Any] = inputs.args[0]
    return ids


def evaluated(code: Repository, name: str, path: str = "", template: str = "") -> Sequence[Any]:
    """Return what the script of evaluation makes of the sentences."""
    options = {"mask_embedding_sentence": template, "mask_embedding_sentence_template": template or None}
    given = {"args": Namespace(**_FLAGS | options), "model": model, "device": "cpu", "torch": torch}
    batcher = code.nested(f"{path}evaluation.py", "batcher", tokenizer=tokenizer(name), **given)
    return read(batcher, None, [sentence.split(" ") for sentence in SENTENCES])


def prompted(method: str, code: Repository, name: str, templates: Sequence[str]) -> dict[str, Any]:
    """PromptBERT or CoT-BERT. Their test tokenizes template and sentence as one text, their validation apart."""
    words, of_roberta = tokenizer(name), name == "roberta"
    path = "" if method == "promptbert" else f"code-for-{'RoBERTa' if of_roberta else 'BERT'}/"
    rows = training(code, name, f"{path}train.py", model_args=Namespace(**SETTINGS | template_options(templates)))
    options = Namespace(**SETTINGS | {"mask_embedding_sentence_delta": False})
    official = MagicMock(model_args=options, spec_set=None)
    set_templates(official, words, templates[:1])
    forward = code.nested("models.py" if path else "prompt_bert/models.py", "sentemb_forward", torch=torch)
    return record(
        method, name, ["model=roberta", *_AS_TEXT[name]] if of_roberta else [], rows,
        validation=read(forward, official, model, **words(SENTENCES, padding=True, return_tensors="pt")),
        test=evaluated(code, name, path, templates[0].replace("|", " *sent 0*" if of_roberta else "*sent 0*")),
    )  # fmt: skip


def sncse(code: Repository, name: str) -> dict[str, Any]:
    """SNCSE without a file of negations, with room for the template. Its test is a script of its own."""
    marks, test = [*string.punctuation], []
    given = {"negation": {}, "PUNCTUATION": marks, "Different_Prompt": False, "Different_Prompt_Negation": True}
    given |= {"model_args": Namespace(model_name_or_path=name), "data_args": Namespace(max_seq_length=66)}
    rows = training(code, name, "SNCSE/train_SNCSE.py", **given)
    pairs = StringIO("\n".join(f"{sentence}\t" * 2 for sentence in SENTENCES))
    unused = ("BertTokenizer", "BertModel", "RobertaTokenizer", "RobertaModel", "torch")
    main = code.nested(
        f"{name}_evaluation.py", "main", **dict.fromkeys(unused, MagicMock()), PUNCTUATION=marks, tqdm=iter,
        os=MagicMock(listdir=lambda folder: [".input."]),
        open=MagicMock(side_effect=[pairs, StopIteration(test)]),
        calculate_cosine=lambda texts, **_: test.append(tokenizer(name)(texts[0]).input_ids),
    )  # fmt: skip
    options = ["data.max_length=66", *_AS_TEXT[name]]
    return record("sncse", name, options, [row[:2] for row in rows], test=read(main, "", ""))


def prompteol(code: Repository, name: str) -> dict[str, Any]:
    """PromptEOL, which tokenizes template and sentence as one text."""
    words, template = tokenizer(name), 'This sentence : "*sent 0*" means in one word:"'
    prompt = code.nested("ft_llm.py", "generate_sentemb_prompt")
    tokenize = code.nested("ft_llm.py", "tokenize", tokenizer=words, cutoff_len=32)
    rows = [[tokenize(prompt({"input": text}, words, 32, template), False)["input_ids"]] for text in SENTENCES]
    test = evaluated(code, name, template=template)
    return record("prompteol", name, ["experiment=prompteol"], rows, test=test)


def cards(code: Repository) -> dict[str, Any]:
    """CARDS, with the other case of every word, so that nothing is drawn."""
    words, switch = tokenizer("roberta"), code.load("data/text_augmentation.py").randomly_switch_case_batch
    tokens = [{"input_ids": [ids], "attention_mask": [[1]]} for ids in words(SENTENCES).input_ids]
    rows = [example["input_ids"] for example in switch(tokens, words, 1.0, "v2")]
    return record("cards", "roberta", ["views.switch_case.probability=1"], rows)
