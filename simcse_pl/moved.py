"""Names of version 0.3.0: its modules under their old names, and what replaced its options."""

import importlib
import re
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

_OLD_NAMES = {  # by the present name, within simcse_pl
    "callbacks": "training.callbacks",
    "checkpoints": "training.checkpoints",
    "data.documents.OneOfNextSentences": "data.views.sentences.OneOfNextSentences",
    "data.formats": "data.readers.formats data.readers.layout",
    "data.labels": "data.readers.labels",
    "data.rows": "data.readers.row_reader",
    "data.sources": "data.readers.sources",
    "data.view": "data.views.view data.views.sentences",
    "data.words": "data.views.segmenters",
    "datamodule": "data.datamodule",
    "encoder_module": "training.encoder_module",
    "evaluation.evaluators": "data.evaluator data.readers.evaluation_files",
    "evaluation.ranking.BinaryPairs": "evaluation.evaluators.BinaryPairs",
    "evaluation.ranking.Bitext": "evaluation.evaluators.Bitext",
    "evaluation.ranking.Retrieval": "evaluation.evaluators.Retrieval",
    "evaluation.sts": "data.senteval.sts_sets",
    "lab.dashboards": "tracking.wandb_logger tracking.wandb_runs tracking.wandb_report",
    "lab.figures": "reports.figures.encoders",
    "lab.optuna_search": "sweeps.optuna_search",
    "lab.published": "reports.published",
    "lab.style": "reports.figures.style",
    "lab.transfer": "data.senteval.transfer_sets evaluation.transfer",
    "loggers": "tracking.csv_logger",
    "losses.labelled_pairs": "losses.scored_pairs losses.softmax",
    "methods.augmentations": "data.views.words data.views.synonym data.views.replace_by_mlm",
    "methods.clusters": "data.clusters",
    "methods.distillation": "losses.distillation",
    "methods.gist": "losses.gist",
    "methods.latent_attention": "models.latent_attention",
    "methods.matryoshka": "losses.matryoshka losses.inner_layer",
    "methods.momentum_queue": "losses.momentum_queue",
    "methods.training_free": "models.training_free",
    "models.backbone": "models.attention",
    "module": "training.module",
    "preemption": "training.preemption",
    "speed.cpu.CpuSpeed": "training.callbacks.CpuSpeed",
    "speed.cpu": "cpu",
    "speed.fsdp": "training.fsdp",
    "speed.unpadded": "models.unpadded",
    "tools.language_models": "inference.cross_encoder",
    "tools.merge": "models.merging",
    "tools.mine": "inference.mining",
    "tools.onnx": "export.onnx",
    "tools.sentence_index.RetrievalTask": "evaluation.suite.RetrievalTask",
    "tools.sentence_index": "inference.sentence_index",
    "tools.simcse": "inference.simcse",
    "trainer": "training.trainer",
    "utils.types": "models.roles",
}
_REPLACED = (  # options, as regular expressions
    (r"experiment=unsup_minilm", "data=wiki_sample trainer.max_steps=105"),
    (r"experiment=unsup_(roberta|bert)(?:_base|(_large))", r"model=\1\2 data=wiki"),
    (r"experiment=sup_(roberta|bert)(?:_base|(_large))", r"model=\1\2 data=nli"),
    (r"experiment=syncse_partial_roberta(?:_base|(_large))", r"experiment=syncse_partial model=roberta\1"),
    (
        r"experiment=sncse_(roberta|bert)(?:_base|(_large))",
        r"method=sncse model=\1\2 views.negation.spacy_model=en_core_web_sm data.num_workers=4",
    ),
    (r"experiment=(\w+)_(roberta|bert)(?:_base|(_large))", r"method=\1 model=\2\3"),
    (r"experiment=(prompteol)_opt_125m|experiment=(llm2vec)_mistral_7b", r"experiment=\1\2"),
    (r"experiment=prompteol_.*", "experiment=prompteol model.name=NAME model/quantization=nf4_double"),
    (r"experiment=llm2vec_.*", "experiment=llm2vec model.name=NAME"),
    (r"size=paper", "model=bert"),
    (r"setting=mlm", "experiment=mlm"),
    (r"sweep=(\w+)_mini", r"sweep=\1 size=mini"),
    (r"supervised_head", "model.head"),
    (r"(?:trainer\.)?accumulate_grad_batches", "module.chunk_size"),
    (r"sweep\.(pairs|limit\.sampled)", "'sweep.row=ROW, sampled' or sweep.sampled"),
)
_PRESENT = {f"simcse_pl.{old}": f"simcse_pl.{new}" for new, olds in _OLD_NAMES.items() for old in olds.split()}
_PACKAGES = {old.rpartition(".")[0] for old in _PRESENT if ".evaluators." not in old and ".callbacks." not in old}


def present_name(name: str) -> str:
    """Return the present dotted name of a module, class or function of version 0.3.0; other names stay as they are."""
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        if present := _PRESENT.get(".".join(parts[:end])):
            return ".".join([present, *parts[end:]])
    return name


def replacement(option: str) -> str:
    """Return what replaced an option, as the end of a message; empty if nothing did."""
    return next((f"; write {re.sub(old, new, option)}" for old, new in _REPLACED if re.fullmatch(old, option)), "")


class _Present(Loader):
    """Puts the present module in the place of an old one."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        if present := _PRESENT.get(module.__name__):
            sys.modules[module.__name__] = importlib.import_module(present)


def find(name: str) -> ModuleSpec | None:
    """Return how to import an old module or package; None for other names."""
    known = name in _PRESENT or name in _PACKAGES
    return ModuleSpec(name, _Present(), is_package=name in _PACKAGES) if known else None
