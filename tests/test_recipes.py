"""The recipes of the methods after SimCSE have the published values."""

import re

import pytest
from omegaconf import OmegaConf

from simcse_pl.config import CONF
from simcse_pl.config.options import check_options
from tests.helpers import composed

NAMES = {
    "bert_base": "bert-base-uncased",
    "bert_large": "bert-large-uncased",
    "roberta_base": "roberta-base",
    "roberta_large": "roberta-large",
}
SIMCSE = "princeton-nlp/unsup-simcse-"
FILES = "hf://datasets/princeton-nlp/datasets-for-simcse/"
SHORTER = {"bert": 24, "roberta": 23}  # 32 tokens less those of the template, 4 + 4, and RoBERTa's single space
TEMPLATES = ['This sentence : " {sentence} " means [MASK] .', 'This sentence of " {sentence} " means [MASK] .']
PROMPTS = ['This sentence of "{sentence}" means [MASK].', 'This sentence : "{sentence}" means [MASK].']
SPACED = ["This sentence : ' {sentence} ' means<mask>.", "The sentence : ' {sentence} ' means<mask>."]
THOUGHTS = [
    f'The sentence {start} "{{sentence}}" {verb} [MASK] , so it {can} be summarized as [MASK] .'
    for start, verb, can in (("of", "means", "can"), (":", "means", "can"), (":", "does not mean", "cannot"))
]
SPACED_THOUGHTS = [text.replace('"{sentence}"', "' {sentence} '").replace("[MASK]", "<mask>") for text in THOUGHTS]
DROPOUT = {"_target_": "simcse_pl.data.views.sentences.Dropout", "role": "positive"}

SHARED = {  # by all recipes, unless a method has its own
    **{"model.head": "mlp_train_only", "model.pooling": "cls", "objective.temperature": 0.05, "data.max_length": 32},
    **{"data.train": f"{FILES}wiki1m_for_simcse.txt", "data.validation": "senteval, hub"},
    **{"trainer.max_epochs": 1, "trainer.max_steps": -1, "val_every": 125},
}


def options_of(part, **options):
    return {f"{part}.{name}": value for name, value in options.items()}


PROMPTED = {"model.final_period": True, "model.pooling": "mask", "data.max_length": 34}
BATCH_NORM = {"model.head": "batch_norm_train_only", "trainer.max_epochs": 2, "views": {"dropout": DROPOUT}}
OF_METHOD = {  # of every recipe
    "esimcse": {"views.token_repetition.formula": "released", "queue.momentum": 0.995},
    "sncse": {
        **options_of("auxiliary.bidirectional_margin", alpha=0.1, beta=0.3),
        **{"model.template": TEMPLATES, "model.pooling": "mask"},
    },
    "cards": {"objective.mask_duplicates": True},
    "pcl": {
        "auxiliary.peer_network.weight": 1.0,
        "views.token_deletion.rate": 0.2,
        "views.token_deletion_2.rate": 0.2,
        "views.token_insertion.rate": 0.2,
        "views.token_insertion_2.rate": 0.2,
        "views.token_insertion_2.max_length": 32,
    },
    "dclr": {"objective.noise_steps": 4, "objective.noise_step_size": 1e-3},
    "simcse_pp": {"auxiliary.dimension_contrast.temperature": 5.0},
    "mixcse": {"objective.share": 0.2},
    "angle_nli": {
        "data.train": "hf://datasets/SeanLee97/all_nli_angle_format_a",
        **{"data.max_length": 128, "model.head": "none", "scheduler.num_warmup_steps": 50},
        **{"trainer.max_epochs": 10, "val_every": 250},
    },
    "diffcse": BATCH_NORM
    | options_of(
        "auxiliary.replaced_token_detection", weight=0.005, probability=0.3, generator="distilbert-base-uncased"
    ),
    "infocse": BATCH_NORM
    | options_of("auxiliary.sentence_mlm", weight=1e-5, frozen_layers=6, layers=2, head="pretrained"),
    "rankcse": {
        "views": {"dropout": DROPOUT},
        **options_of("auxiliary.ranking_consistency", weight=1.0, temperature=0.05),
        **options_of("auxiliary.ranking_distillation", weight=1.0, loss="list_mle", alpha=0.33, pooling="cls"),
        **options_of("auxiliary.ranking_distillation", temperature=0.05, teacher_temperature=0.025),
        "auxiliary.ranking_distillation.teachers": [
            "voidism/diffcse-bert-base-uncased-sts",
            f"{SIMCSE}bert-large-uncased",
        ],
    },
    "whitenedcse": {"objective.groups": 128, "views": {"dropout": DROPOUT, "second_dropout": DROPOUT}},
    "promptbert": PROMPTED | {"model.template_bias": "train_only"},
    "promptbert_sup": PROMPTED
    | {"model.template_bias": "always", "trainer.max_epochs": 3, "data.train": f"{FILES}nli_for_simcse.csv"},
    "cot_bert": PROMPTED | {"model.template_bias": "padded_train_only", "model.pooling": "mask_2"},
}
OPTIONS = {  # those that a method's models have their own values of, after batch size and learning rate
    "esimcse": ("views.token_repetition.rate", "queue.size", "model.dropout"),
    "sncse": ("auxiliary.bidirectional_margin.weight",),
    "cards": ("views.switch_case.probability", "views.switch_case.independent"),
    "pcl": ("auxiliary.peer_network.temperature",),
    "dclr": ("model.name", "objective.guide", "objective.threshold", "objective.noise_ratio", "trainer.max_epochs"),
    "gs_infonce": ("model.dropout", "objective.std"),
    "infocse": ("model.name", "auxiliary.sentence_mlm.probability", "auxiliary.sentence_mlm.frozen_dropout"),
    "promptbert": ("model.template",),
    "promptbert_sup": ("model.template", "model.head"),
    "cot_bert": ("model.template",),
}
PUBLISHED = {
    "esimcse_bert_base": (64, 3e-5, 0.32, 160, None),
    "esimcse_bert_large": (64, 1e-5, 0.32, 160, None),
    "esimcse_roberta_base": (64, 1e-5, 0.3, 160, None),
    "esimcse_roberta_large": (64, 1e-5, 0.28, 128, 0.15),
    "sncse_bert_base": (256, 1e-5, 1e-3),
    "sncse_bert_large": (128, 5e-6, 1e-3),
    "sncse_roberta_base": (256, 1e-5, 5e-4),
    "sncse_roberta_large": (128, 5e-6, 5e-4),
    "cards_roberta_base": (512, 4e-5, 0.05, True),
    "cards_roberta_large": (512, 7.5e-6, 0.1, False),
    "pcl_bert_base": (256, 3e-5, 0.05),
    "dclr_bert_base": (128, 3e-5, "bert-base-uncased", f"{SIMCSE}bert-base-uncased", 0.9, 1.0, 3),
    "dclr_bert_large": (256, 3e-5, f"{SIMCSE}bert-large-uncased", f"{SIMCSE}bert-base-uncased", 0.9, 3.0, 1),
    "dclr_roberta_base": (128, 3e-5, "roberta-base", f"{SIMCSE}roberta-base", 0.85, 2.5, 3),
    "dclr_roberta_large": (256, 1e-5, f"{SIMCSE}roberta-large", f"{SIMCSE}roberta-base", 0.85, 5.0, 1),
    "gs_infonce_bert_base": (64, 3e-5, 0.2, 0.5),
    "gs_infonce_bert_large": (64, 1e-5, 0.2, 0.1),
    "gs_infonce_roberta_base": (64, 1e-5, 0.1, 0.1),
    "gs_infonce_roberta_large": (128, 2e-5, 0.1, 0.5),
    "mixcse_bert_base": (64, 3e-5),
    "simcse_pp_bert_base": (64, 3e-5),
    "angle_nli_bert_base": (128, 5e-5),
    "diffcse_bert_base": (64, 7e-6),
    "infocse_bert_base": (64, 7e-6, "Luyu/condenser", 0.4, False),
    "infocse_bert_large": (64, 7e-6, "ffgcc/condenser-bert-large-uncased", 0.3, True),
    "rankcse_bert_base": (128, 3e-5),
    "whitenedcse_bert_base": (128, 1e-5),
    "promptbert_bert_base": (256, 1e-5, PROMPTS),
    "promptbert_roberta_base": (256, 1e-5, SPACED),
    "promptbert_sup_bert_base": (512, 5e-5, PROMPTS[0], "transform"),
    "promptbert_sup_roberta_base": (512, 5e-5, SPACED[0], "mlp"),
    "cot_bert_bert_base": (256, 1e-5, THOUGHTS),
    "cot_bert_roberta_base": (256, 1e-5, SPACED_THOUGHTS),
}


def options_for(recipe, method, model):
    """Return the options of a published run. That of the smallest model is the method itself."""
    if (CONF / "experiment" / f"{recipe}.yaml").exists():
        return [f"experiment={recipe}"]
    return [f"method={method.removesuffix('_nli')}", f"model={model.removesuffix('_base')}"]


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_a_recipe_has_the_published_values(recipe):
    method, model = re.fullmatch("(.+)_((?:bert|roberta)_(?:base|large))", recipe).groups()
    config = composed(*options_for(recipe, method, model))
    own = dict(zip(("data.batch_size", "optimizer.lr", *OPTIONS.get(method, ())), PUBLISHED[recipe], strict=True))
    if method == "sncse":
        own["data.max_length"] = SHORTER[model.split("_")[0]]
    expected = SHARED | {"model.name": NAMES[model]} | OF_METHOD.get(method, {}) | own
    for option, value in expected.items():
        assert OmegaConf.select(config, option) == value, option
    auxiliary = {option.split(".")[1] for option in expected if option.startswith("auxiliary.")}
    assert {*config.get("auxiliary", {})} == auxiliary
    check_options(config)


def test_sncse_parses_sentences_in_its_recipes_only():
    parsing = {"views": {"negation": {"spacy_model": "en_core_web_sm"}}, "data": {"num_workers": 4}}
    assert OmegaConf.merge(composed("method=sncse", "model=bert"), parsing) == composed("experiment=sncse_bert_base")
