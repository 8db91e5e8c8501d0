"""Methods that embed a sentence in a template, with their preparation of sentences."""

import string
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import BertModel, PreTrainedTokenizerFast

from benchmarks.fidelity.common import (
    PAIRS,
    RECORDS,
    TRIPLETS,
    Record,
    Repository,
    features,
    official_model,
    padded,
    tokenizer,
)
from benchmarks.fidelity.simcse import NAMES

SENTENCE = Namespace(max_seq_length=32, pad_to_max_length=False)
FIRST, SECOND = 'This sentence of "|" means[MASK].', 'This sentence : "|" means[MASK].'
ROBERTA = ["This sentence : '| ' means<mask>.", "The sentence : '| ' means<mask>."]
COT_BERT = [
    'The sentence of "|" means [MASK] , so it can be summarized as [MASK] .',
    'The sentence : "|" means [MASK] , so it can be summarized as [MASK] .',
    'The sentence : "|" does not mean [MASK] , so it cannot be summarized as [MASK] .',
]
_PREFIX = "mask_embedding_sentence"
# The options of the scripts of PromptBERT, which CoT-BERT has, too.
SETTINGS = {
    _PREFIX: True, f"{_PREFIX}_num_masks": 1, f"{_PREFIX}_delta": True, f"{_PREFIX}_org_mlp": False,
    f"{_PREFIX}_delta_freeze": False, f"{_PREFIX}_autoprompt": False, f"{_PREFIX}_delta_no_position": False,
    "temp": 0.05, "dot_sim": False, "norm_instead_temp": False, "hard_negative_weight": 0.0,
    "only_embedding_training": False,
}  # fmt: skip


def records(folders: Path) -> Iterator[Record]:
    """Yield a record of each method, and of each kind of tokenizer."""
    promptbert = Repository(folders, "kongds/Prompt-BERT", "690ba6e")
    head = {"mlp.dense.": "encoder.projection.0.", "mlp.LayerNorm.": "encoder.projection.2."}
    recipe = "experiment=promptbert_"
    for name, options, names, templates, rows, section in (
        ("promptbert", ["method=promptbert"], NAMES, [FIRST, SECOND], PAIRS, '"unsup-bert")'),
        ("promptbert_sup", [f"{recipe}sup_bert_base"], head, [FIRST], TRIPLETS, '"sup-bert")'),
    ):
        record = Record(name, promptbert, options, names, rows, script="run.sh", section=section)
        yield prompted(record, templates)
    repaired = "the position ids of the bias begin at 2, as those of the sentences, not at 0"
    for name, options, templates, rows in (
        ("roberta", ["method=promptbert", "model=roberta"], ROBERTA, PAIRS),
        ("sup_roberta", [f"{recipe}sup_roberta_base"], ROBERTA[:1], TRIPLETS),
    ):
        record = Record(f"promptbert_{name}", promptbert, options, NAMES, rows, repaired, "roberta")
        yield prompted(record, templates)
    yield sncse(folders)
    yield cot_bert(folders)
    yield cse_sfp(folders)


def template_options(templates: Sequence[str]) -> dict[str, str]:
    """Return the options of templates: what is before the sentence and what is after it."""
    options = {}
    for number, template in zip(("", "2", "3"), templates, strict=False):
        options[f"{_PREFIX}_bs{number}"], options[f"{_PREFIX}_es{number}"] = template.split("|")
    different = templates[1] if len(templates) > 1 else ""
    return options | {
        f"{_PREFIX}_different_template": different,
        f"{_PREFIX}_negative_template": templates[2] if len(templates) > 2 else "",
        f"{_PREFIX}_different_negative_template": "",
    }


def set_templates(model: nn.Module, words: PreTrainedTokenizerFast, templates: Sequence[str]) -> None:
    """Give an official model the ids of templates."""
    model.mask_token_id, model.pad_token_id = words.mask_token_id, words.pad_token_id
    for number, template in zip(("", "2", "3"), templates, strict=False):
        begin, end = template.split("|")
        setattr(model, f"bs{number}", words.encode(begin, add_special_tokens=False))
        setattr(model, f"es{number}", words.encode(end, add_special_tokens=False))
        setattr(model, f"mask_embedding_template{number}", words.encode(begin + end))


def prompted(record: Record, templates: Sequence[str]) -> Record:
    """PromptBERT (Jiang et al. 2022)."""
    architecture, words = record.architecture, tokenizer(record.architecture)
    counted = "torch.arange(d_input_ids.shape[1])"
    official = record.repository.load(
        "prompt_bert/models.py", lambda source: source.replace(counted, f"{2 * bool(record.repaired)} + {counted}")
    )
    transform = {f"{_PREFIX}_org_mlp": "mlp.LayerNorm." in record.names}
    options = Namespace(**SETTINGS | template_options(templates) | transform)
    prepare = record.repository.nested(
        "train.py", "prepare_features", tokenizer=words, model_args=options, data_args=SENTENCE, **record.column_names()
    )
    inputs = features(prepare, record.sentences, words.pad_token_id)
    make = official.BertForCL if architecture == "bert" else official.RobertaForCL
    model = official_model(make, architecture, model_args=options)
    set_templates(model, words, templates)
    return record.run(model, inputs, lambda model: model(**inputs).loss)


def sncse(folders: Path) -> Record:
    """SNCSE (Wang et al. 2022)."""
    rows = ["The man plays music.", "Two dogs run in the snow.", "The dog is red.", "She said so."]
    negations = [
        "The man does not play music.",
        "Two dogs do not run in the snow.",
        "The dog is not red.",
        "She said no.",
    ]
    repository = Repository(folders, "Sense-GVT/SNCSE", "faa013e", "SNCSE")
    options, sentences = ["method=sncse", "auxiliary.bidirectional_margin.weight=0.5"], [[row] for row in rows]
    record = Record("sncse", repository, options, NAMES, sentences, views="recorded", script="../train_SNCSE.sh")
    words = tokenizer()
    prepare = repository.nested(
        "train_SNCSE.py", "prepare_features", tokenizer=words, model_args=Namespace(model_name_or_path="bert"),
        data_args=SENTENCE, defaultdict=defaultdict, PUNCTUATION=[*string.punctuation], Different_Prompt=False,
        Different_Prompt_Negation=True, negation=dict(zip(rows, negations, strict=True)),
        sent0_cname="sent0", sent1_cname="sent0",
    )  # fmt: skip
    inputs = features(prepare, record.sentences)
    official = repository.load("simcse/models.py")
    model = official_model(
        official.BertForCL, mask_token_id=words.mask_token_id, alpha=0.1, beta=0.3, lambda_=0.5,
        model_args=Namespace(pooler_type="cls", temp=0.05, do_mlm=False),
    )  # fmt: skip
    return record.run(model, inputs, lambda model: model(**inputs).loss)


def cot_bert(folders: Path) -> Record:
    """CoT-BERT (Zhang et al. 2024)."""
    repository = Repository(folders, "ZBWpro/CoT-BERT", "3aa7bb4")
    record = Record("cot_bert", repository, ["method=cot_bert"], NAMES, [[first] for first, _ in PAIRS])
    record.script = "code-for-BERT/train.py"
    words = tokenizer()
    options = Namespace(**SETTINGS | template_options(COT_BERT))
    prepare = repository.nested(
        "code-for-BERT/train.py", "prepare_features", tokenizer=words, model_args=options, data_args=SENTENCE,
        sent0_cname="sent0", sent1_cname="sent0", sent2_cname=None,
    )  # fmt: skip
    inputs = features(prepare, record.sentences)
    model = official_model(repository.load("models.py").BertForCL, model_args=options)
    set_templates(model, words, COT_BERT)
    model.mask_num, model.total_length = 2, model.config.max_position_embeddings
    return record.run(model, inputs, lambda model: model(**inputs).loss)


def cse_sfp(folders: Path) -> Record:
    """CSE-SFP (Zhang, Song and Li 2025), whose tokens are counted from the end: sentences are padded on the left."""
    repository, words = Repository(folders, "ZBWpro/CSE-SFP", "5a5adc2"), tokenizer()
    repaired = "the model is BERT, so the distance of the two tokens counts [SEP]"
    singles = [[first] for first, _ in PAIRS]
    record = Record("cse_sfp", repository, ["method=cse_sfp"], {"": "encoder.backbone."}, singles, repaired)
    template, ending = 'This sentence : "*sent_0*" means something', ", it can also be summarized as"
    prompt = repository.nested("code/train.py", "generate_sentemb_prompt")
    texts = [prompt({"anchor": first}, words, 32, template + ending, prefix="anchor") for (first,) in singles]
    inputs = padded([[ids, ids] for ids in words(texts).input_ids])
    similarity = repository.nested("code/train.py", "Similarity", nn=nn)
    compute = repository.nested(
        "code/train.py", "compute_loss", torch=torch, nn=nn, dist=dist, Similarity=similarity,
        ANCHOR_POSITIVE_DISTANCE=len(words(ending, add_special_tokens=False).input_ids) + 1,
    )  # fmt: skip
    trainer = Namespace(is_nli=False, use_neg_sentence=False)
    mask = inputs["attention_mask"][:, 0]
    order = mask.sort(dim=1, stable=True).indices  # padding first
    left = {name: x[:, 0].gather(1, order) for name, x in inputs.items()}
    left["position_ids"] = (left["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)

    def loss(model: nn.Module) -> Tensor:
        return compute(trainer, model, dict(left))

    return record.run(BertModel.from_pretrained(RECORDS / "bert", add_pooling_layer=False), inputs, loss)
