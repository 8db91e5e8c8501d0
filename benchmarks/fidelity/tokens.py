"""Token ids that the official code of published methods makes of sentences, in training and at test time."""

import random
import string
from collections import defaultdict
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from tokenizers import ByteLevelBPETokenizer
from torch import Tensor
from transformers import RobertaTokenizerFast

from benchmarks.fidelity.common import RECORDS, Repository, arguments, tokenizer
from benchmarks.fidelity.templates import PREFIX, SENTENCE, SETTINGS, set_templates, template_options

SENTENCES = [
    "A man plays a guitar.", "Two dogs run in the snow", "Why is it red?", 'He said "no"', "the dog !",
    "She did not agree, she said so twice.",
]  # fmt: skip
PLAIN = {  # repositories, folders and commits of code that adds no template
    "simcse": ("princeton-nlp/SimCSE", ".", "49fa580"),
    "gs_infonce": ("caskcsg/sentemb", "gsInfoNCE", "5eeec55"),
    "mixcse": ("BDBC-KG-NLP/MixCSE_AAAI2022", ".", "884145e"),
    "diffcse": ("voidism/DiffCSE", ".", "f724b2c"),
    "rankcse": ("perceptiveshawty/RankCSE", ".", "17c5226"),
}
_SUMMARIZED = ["_means_*mask*_,_so_it_can_be_summarized", "_does_not_mean_*mask*_,_so_it_cannot_be_summarized"]
_COT_BERT = [
    f"*cls*_The_sentence_{colon}_{{}}{_SUMMARIZED[negated]}_as_*mask*_._*sep+*"
    for colon, negated in (("of", 0), (":", 0), (":", 1))
]
TEMPLATES = {  # as in the scripts
    ("promptbert", "bert"): [f'*cls*_This_sentence_{colon}_"*sent_0*"_means*mask*.*sep+*' for colon in ("of", ":")],
    ("promptbert", "roberta"): [f"*cls*_{word}_sentence_:_'_*sent_0*_'_means*mask*.*sep+*" for word in ("This", "The")],
    ("cot_bert", "bert"): [template.format('"*sent_0*"') for template in _COT_BERT],
    ("cot_bert", "roberta"): [template.format("'_*sent_0*_'") for template in _COT_BERT],
}
AS_TEXT = {"bert": [], "roberta": ["model.template_as_text=test_only"]}
Ids = list[list[int]]


def records(folders: Path) -> Iterator[dict[str, Any]]:
    """Yield the token ids of each method, with WordPiece and with byte-level BPE."""
    for name in ("bert", "roberta"):
        for method, (repository, folder, commit) in PLAIN.items():
            code = Repository(folders, repository, commit, folder)
            yield record(method, name, [], training(code, name), evaluated(code, name))
        yield from prompted(folders, name)
        yield sncse(Repository(folders, "Sense-GVT/SNCSE", "faa013e"), name)
        code = Repository(folders, "caskcsg/sentemb", "5eeec55", "ESimCSE")
        options = arguments(dup_type="bpe", dup_rate=0.32)
        rows = training(code, name, model_args=options, random=random.Random(3))
        yield record("esimcse", name, [], rows, evaluated(code, name))
    for name in ("bert", save_bpe()):
        yield prompteol(Repository(folders, "kongds/scaling_sentemb", "8567aa0"), name)
    yield cards(Repository(folders, "alibaba/SimCSE-with-CARDS", "8e038a0"))


def record(
    method: str, name: str, options: list[str], rows: list[Ids], test: Ids | None = None, validation: Ids | None = None
) -> dict[str, Any]:
    """Return the ids of the views of all rows of training in turn, and those of the sentences afterwards."""
    options = options if "experiment=" in str(options) else [f"method={method}", *options]
    ids = {"training": [ids for row in rows for ids in row], "test": test, "validation": validation}
    facts = {"method": method, "tokenizer": name, "options": options, "sentences": SENTENCES, "views": len(rows[0])}
    return facts | {part: ids[part] for part in ids if ids[part]}


def training(code: Repository, name: str, path: str = "train.py", **given: object) -> list[Ids]:
    """Return what the script of training makes of the sentences, each of which is its own positive."""
    columns = {"sent0_cname": "sent0", "sent1_cname": "sent0", "sent2_cname": None}
    given = {"tokenizer": tokenizer(name), "data_args": SENTENCE, "defaultdict": defaultdict} | columns | given
    prepare = code.nested(path, "prepare_features", **given)
    pad = tokenizer(name).pad_token_id
    rows = prepare({"sent0": [*SENTENCES]})["input_ids"]
    return [[[token for token in view if token != pad] for view in row] for row in rows]


def read_by(run: Callable[..., object], *given: object, **options: object) -> Ids:
    """Return the ids that a function gives to its model, which ends it."""
    try:
        run(*given, **options)
    except StopIteration as inputs:
        ids, mask = inputs.args
    rows = zip(ids.tolist(), mask.tolist(), strict=True)
    return [[token for token, kept in zip(*row, strict=True) if kept] for row in rows]


def read(input_ids: Tensor, attention_mask: Tensor, **further: object) -> None:
    """Stand for a model."""
    raise StopIteration(input_ids, attention_mask)


def evaluated(code: Repository, name: str, path: str = "", template: str = "") -> Ids:
    """Return what the script of evaluation makes of the sentences."""
    options = {"mask_embedding_sentence_template": template, "mask_embedding_sentence": True} if template else {}
    given = dict.fromkeys(("mask_embedding_sentence_autoprompt", "embedding_only", "remove_continue_word"), False)
    batcher = code.nested(
        f"{path}evaluation.py", "batcher", tokenizer=tokenizer(name),
        args=arguments(**given | options), model=read, device="cpu", torch=torch,
    )  # fmt: skip
    return read_by(batcher, None, [sentence.split(" ") for sentence in SENTENCES])


def prompted(folders: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield PromptBERT and CoT-BERT. Their test tokenizes template and sentence as one text, their validation apart."""
    words, as_text = tokenizer(name), AS_TEXT[name]
    folder = f"code-for-{'RoBERTa' if as_text else 'BERT'}/"
    for method, repository, commit, path, models in (
        ("promptbert", "kongds/Prompt-BERT", "690ba6e", "", "prompt_bert/models.py"),
        ("cot_bert", "ZBWpro/CoT-BERT", "3aa7bb4", folder, "models.py"),
    ):
        code, parts = Repository(folders, repository, commit), []
        for template in TEMPLATES[method, name]:
            text = template.replace("*mask*", words.mask_token).replace("*cls*", "").replace("*sep+*", "")
            begin, end = text.replace("_", " ").split("*sent 0*")
            parts.append(f"{begin.strip() if as_text else begin}|{end}")
        rows = training(code, name, f"{path}train.py", model_args=arguments(**SETTINGS | template_options(parts)))
        official = arguments(model_args=arguments(**SETTINGS | {f"{PREFIX}_delta": False}), config=None)
        set_templates(official, words, parts[:1])
        inputs = words(SENTENCES, padding=True, return_tensors="pt")
        validated = read_by(
            code.nested(models, "sentemb_forward", torch=torch), official, read, **inputs, return_dict=1
        )
        options = [f"experiment={method}_roberta_base", *as_text] if as_text else []
        yield record(method, name, options, rows, evaluated(code, name, path, TEMPLATES[method, name][0]), validated)


def sncse(code: Repository, name: str) -> dict[str, Any]:
    """SNCSE without a file of negations, with room for the template; its test is a script of its own."""
    words, marks = tokenizer(name), [*string.punctuation]
    test: Ids = []
    given = {"negation": {}, "PUNCTUATION": marks, "Different_Prompt": False, "Different_Prompt_Negation": True}
    options = {"model_args": arguments(model_name_or_path=name), "data_args": arguments(max_seq_length=66)}
    rows = training(code, name, "SNCSE/train_SNCSE.py", **given | options)
    main = code.nested(
        f"{name}_evaluation.py", "main", os=MagicMock(listdir=lambda folder: [".input."]), PUNCTUATION=marks,
        BertTokenizer=MagicMock(), BertModel=MagicMock(), RobertaTokenizer=MagicMock(), RobertaModel=MagicMock(),
        torch=MagicMock(), tqdm=iter, calculate_cosine=lambda texts, **_: test.append(words(texts[0]).input_ids),
        open=MagicMock(side_effect=[StringIO("\n".join(f"{text}\t{text}" for text in SENTENCES))]),
    )  # fmt: skip
    try:
        main("", "")
    except StopIteration:  # there is no file of scores
        return record("sncse", name, ["data.max_length=66", *AS_TEXT[name]], [row[:2] for row in rows], test)


def prompteol(code: Repository, name: str) -> dict[str, Any]:
    """PromptEOL, which tokenizes template and sentence as one text."""
    words, template = tokenizer(name), 'This_sentence_:_"*sent_0*"_means_in_one_word:"'
    prompt = code.nested("ft_llm.py", "generate_sentemb_prompt")
    tokenize = code.nested("ft_llm.py", "tokenize", tokenizer=words, cutoff_len=32)
    texts = [prompt({"input": sentence}, words, 32, template) for sentence in SENTENCES]
    rows = [[tokenize(text, False)["input_ids"]] for text in texts]
    return record("prompteol", name, ["experiment=prompteol_opt_125m"], rows, evaluated(code, name, template=template))


def save_bpe() -> str:
    """Save a byte-level BPE in which a period and a quotation mark are one token, as in those of OPT and RoBERTa."""
    (RECORDS / "bpe").mkdir(exist_ok=True)
    words = ByteLevelBPETokenizer()
    words.train_from_iterator(
        [f'This sentence : "{text}" means in one word:"' for text in SENTENCES] * 5,
        vocab_size=320, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False,
    )  # fmt: skip
    words.save_model(str(RECORDS / "bpe"))
    RobertaTokenizerFast.from_pretrained(RECORDS / "bpe", model_max_length=66).save_pretrained(RECORDS / "bpe")
    return "bpe"


def cards(code: Repository) -> dict[str, Any]:
    """CARDS, with the other case of every word, so that nothing is drawn."""
    words, rows = tokenizer("roberta"), []
    switch = code.load("data/text_augmentation.py").randomly_switch_case_batch
    for ids in words(SENTENCES, truncation=True, max_length=32).input_ids:
        [example] = switch([{"input_ids": [ids], "attention_mask": [[1] * len(ids)]}], words, 1.0, "v2")
        rows.append(example["input_ids"])
    return record("cards", "roberta", ["views.switch_case.probability=1"], rows)
