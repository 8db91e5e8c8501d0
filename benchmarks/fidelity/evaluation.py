"""Official code of evaluation on fixed vectors, and a released checkpoint with the vectors of the official class."""

import json
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import normalize
from transformers import BertConfig, BertTokenizer

from benchmarks.fidelity.common import RECORDS, Repository
from tests.support.senteval_bundle import WORDS, word_sums, write_bundle

STS = {"STS13": "STS13", "STS-B": "STSBenchmark", "SICK-R": "SICKRelatedness"}  # our names, and SentEval's
TRANSFER = {"MR": "MR", "SST": "SST2", "MRPC": "MRPC"}
ROWS = 150  # of a class of MR
DIM = 5  # of the whitened vectors
CHECKPOINT = RECORDS / "sup-simcse-bert-base-uncased"


def record(folders: Path) -> None:
    """Write the records of evaluation and of the checkpoint: evaluation.safetensors, evaluation.yaml and a folder."""
    torch.manual_seed(2)
    tensors = {"words": torch.randn(len(WORDS), 8)}
    simcse = Repository(folders, "princeton-nlp/SimCSE", "49fa580")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_bundle(folder / "downstream", ROWS)
        records = {
            "senteval": senteval(simcse, tensors, folder),
            "whitening": whitening(folders, tensors, folder),
            "alignment_uniformity": alignment_uniformity(folders, tensors),
            "checkpoint": checkpoint(simcse, tensors),
        }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, RECORDS / "evaluation.safetensors")
    numbers = json.loads(json.dumps(records, default=float))
    (RECORDS / "evaluation.yaml").write_text(yaml.safe_dump(numbers, sort_keys=False, width=120))


def facts(repository: Repository, repaired: str = "", **values: object) -> dict[str, object]:
    """Return what evaluation.yaml says of a record."""
    known = {"repository": repository.name, "commit": repository.commit, "repaired": repaired, **values}
    return {name: value for name, value in known.items() if value}


def copied(repository: Repository, folder: Path, changes: Mapping[str, str]) -> Repository:
    """Copy a repository to a folder, with changes of the text of its files, which import each other."""
    shutil.copytree(repository.place, folder / repository.place.name)
    unused = set(changes)
    for file in (folder / repository.place.name).rglob("senteval/**/*.py"):
        text = file.read_text()
        unused -= {before for before in unused if before in text}
        for before, after in changes.items():
            text = text.replace(before, after)
        file.write_text(text)
    assert not unused
    return Repository(folder, repository.name, repository.commit)


def senteval(simcse: Repository, tensors: Mapping[str, Tensor], folder: Path) -> dict[str, object]:
    """SentEval (Conneau and Kiela 2018), in the copy and with the settings of SimCSE."""
    changes = {".cuda()": "", "torch.device('cuda')": "torch.device('cpu')", "getargspec": "getfullargspec"}
    copy = copied(simcse, folder, changes)
    official = Repository(folder, simcse.name, simcse.commit, "SentEval").load("senteval/engine.py")
    full = {"nhid": 0, "optim": "adam", "batch_size": 64, "tenacity": 5, "epoch_size": 4}
    fast = {"nhid": 0, "optim": "rmsprop", "batch_size": 128, "tenacity": 3, "epoch_size": 2}
    classifiers: dict[str, dict[str, object]] = {
        "pytorch_fast": {"usepytorch": True, "kfold": 5, "classifier": fast},
        "scikit-learn": {"usepytorch": False, "kfold": 10},
        "pytorch": {"usepytorch": True, "kfold": 10, "classifier": full},
    }

    def batcher(_: object, batch: Sequence[Sequence[str]]) -> object:
        return word_sums(map(" ".join, batch), tensors["words"]).numpy()

    scores: dict[str, object] = {}
    for classifier, options in classifiers.items():
        engine = official.SE({"task_path": str(folder), **options}, batcher)
        scores[classifier] = {task: engine.eval(name) for task, name in TRANSFER.items()}
    for task, name in STS.items():
        result = engine.eval(name)
        scores[task] = result["all"]
        if "test" in result:  # in place of the mean over train, dev and test
            scores[task] = {kind: {"all": result["test"][kind][0]} for kind in ("spearman", "pearson")}
    return facts(copy, "the PyTorch classifier runs on the CPU, and with Python 3.11", rows=ROWS, scores=scores)


def whitening(folders: Path, tensors: dict[str, Tensor], folder: Path) -> dict[str, object]:
    """BERT-whitening (Su et al. 2021), fitted on the sentences of each task; the weighted mean over subsets."""
    repository = Repository(folders, "autoliuweijie/BERT-whitening-pytorch", "b5cfbd6")
    changes = {f"for s in sent{number}])": f"for s in sent{number}], dtype=object)" for number in (1, 2)}
    copy = copied(repository, folder, changes)
    official = copy.load("eval_with_whitening(target).py")
    official.sents_to_vecs = lambda sentences, *_, **__: word_sums(sentences, tensors["words"]).numpy()
    official.sent_to_vec = lambda sentence, *_: official.sents_to_vecs([sentence])[0]
    scores = {}
    for task, name in {"STS13": "STS13", "STS-B": "STSBenchmarkCosin", "SICK-R": "SICKRelatednessCosin"}.items():
        options = dict.fromkeys(("tokenizer", "encoder", "pooling")) | {"n_components": DIM, "batch_size": 256}
        engine = official.senteval.engine.SE(options | {"task_path": str(folder)}, official.batcher, official.prepare)
        result = engine.eval(name)
        scores[task] = result["all"]["spearman"]["wmean"] if task == "STS13" else result["spearman"]
        kernel, bias = engine.params["whiten"]
        tensors |= {f"{task}/kernel": torch.from_numpy(kernel), f"{task}/bias": torch.from_numpy(bias)}
    return facts(copy, "SentEval's arrays of sentences are arrays of objects, for numpy 1.24", dim=DIM, scores=scores)


def alignment_uniformity(folders: Path, tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """Alignment and uniformity (Wang and Isola 2020), of the vectors of words in place of sentences."""
    repository = Repository(folders, "SsnL/align_uniform", "e256d47")
    official, vectors = repository.load("align_uniform/__init__.py"), normalize(tensors["words"])
    measures = official.align_loss(*vectors.split(len(WORDS) // 2)), official.uniform_loss(vectors)
    return facts(repository, scores=dict(zip(("alignment", "uniformity"), measures, strict=True)))


def checkpoint(simcse: Repository, tensors: dict[str, Tensor]) -> dict[str, object]:
    """A checkpoint of the official class, converted by the official script, and the vectors of the official tool."""
    config = BertConfig.from_pretrained(RECORDS / "bert", max_position_embeddings=512, num_hidden_layers=3)
    options = Namespace(pooler_type="cls", temp=0.05, hard_negative_weight=0.0, do_mlm=False)
    torch.manual_seed(3)
    model = simcse.load("simcse/models.py").BertForCL(config, model_args=options).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
    positions = {"bert.embeddings.position_ids": model.bert.embeddings.position_ids}  # transformers 4.2 saved them
    model.save_pretrained(CHECKPOINT, state_dict=model.state_dict() | positions, safe_serialization=False)
    BertTokenizer(str(RECORDS / "bert" / "vocab.txt"), model_max_length=512).save_pretrained(CHECKPOINT)
    with patch.object(sys, "argv", ["", "--path", str(CHECKPOINT)]):
        simcse.load("simcse_to_huggingface.py").main()
    letters, lengths = "abcdefghijklmnopqrstuvwxyz" * 30, (0, 1, 5, 125, 126, 127, 300, 600)
    sentences = [" ".join(letters[start : start + length]) for start, length in enumerate(lengths)]
    tool = simcse.load("simcse/tool.py")
    for pooler in ("cls", "cls_before_pooler"):
        official = tool.SimCSE(str(CHECKPOINT), "cpu", pooler=pooler)
        tensors[f"vectors/{pooler}"] = official.encode(sentences)
        tensors[f"vectors/{pooler}/single"] = torch.stack([official.encode(sentence) for sentence in sentences])
    known = {"torch": torch, "device": "cpu", "model": official.model, "tokenizer": official.tokenizer}
    words = [sentence.split() for sentence in sentences]
    for pooler in ("avg", "avg_first_last", "avg_top2"):
        batcher = simcse.nested("evaluation.py", "batcher", args=Namespace(pooler=pooler), **known)
        tensors[f"vectors/{pooler}"] = batcher(None, words, 128)
        tensors[f"vectors/{pooler}/single"] = torch.cat([batcher(None, [sentence], 128) for sentence in words])
    return facts(simcse, sentences=sentences)
