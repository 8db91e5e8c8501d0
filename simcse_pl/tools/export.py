"""Write an encoder and its model card to a folder for sentence-transformers and transformers.

An adapter is merged with its base model. Options add ONNX files to the folder, or upload the folder to the hub.
"""

import argparse
import logging
import sys
from pathlib import Path

from huggingface_hub import HfApi

from simcse_pl.evaluation.results import Result
from simcse_pl.evaluation.sts import load_sample
from simcse_pl.lab.encoder_tables import encoder_tables
from simcse_pl.lab.figures import encoder_figures
from simcse_pl.lab.read_runs import read, read_run
from simcse_pl.lab.style import png
from simcse_pl.models.adapters import merge_adapter
from simcse_pl.models.backbone import has_adapter
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import fingerprint
from simcse_pl.models.sentence_transformers_format import unsupported_option
from simcse_pl.models.settings import SETTINGS_FILE
from simcse_pl.postprocessing.post_process import load as load_postprocess
from simcse_pl.tools.common import add_encoder, load_selected, new_folder
from simcse_pl.tools.model_card import read_training, run_folder, write_card
from simcse_pl.tools.onnx import write_onnx
from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, computes=False)
    parser.add_argument("folder", metavar="FOLDER", help="output folder; it must not contain files")
    parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    text = "add a linear post-processing: the folder `postprocess` in the output folder of `simcse evaluate`"
    parser.add_argument("--postprocess", metavar="FOLDER", help=text)
    text = "also write an ONNX file, and check that its vectors differ from those of the encoder by at most 1e-4"
    parser.add_argument("--onnx", action="store_true", help=text)
    text = "also write ONNX with 8-bit weights, and check that cosines of its vectors with the encoder's exceed 0.98"
    parser.add_argument("--int8", action="store_true", help=text)
    text = "output folders of `simcse evaluate`, whose scores the model card shows"
    parser.add_argument("--results", nargs="+", default=[], metavar="FOLDER", help=text)
    parser.add_argument("--license", help="license to write on the model card, such as apache-2.0")
    parser.add_argument("--language", help="language to write on the model card, such as en")
    parser.add_argument("--push-to-hub", metavar="OWNER/NAME", help="repository on the hub to upload the folder to")
    parser.add_argument("--private", action="store_true", help="create the repository as private")


def run(arguments: argparse.Namespace) -> None:
    folder, repository = new_folder(arguments.folder), arguments.push_to_hub
    if repository == "":  # an unset variable of a shell
        raise UserError("--push-to-hub is empty: give OWNER/NAME")
    results = [(path, read(path)) for path in arguments.results]
    training = read_training(arguments.encoder)
    if arguments.truncate_dim and training and "dims" not in training.recipe.get("objective", {}):
        log.warning("--truncate-dim: it was not trained with objective=matryoshka; measure what shorter vectors lose")
    encoder = _load_encoder(arguments)
    exported = fingerprint(encoder) if results else None
    for path, result in results:
        if not isinstance(result, Result) or result.fingerprint != exported:
            raise UserError(
                f"--results {path}: not measured with the weights, pooling, max_length, normalization and "
                "post-processing of the export; evaluate this encoder, or leave out --results"
            )
    if has_adapter(encoder.backbone):
        merge_adapter(encoder.backbone)
    if option := unsupported_option(encoder.settings, encoder.templates, encoder.backbone, encoder.postprocess):
        raise UserError(f"{option}: sentence-transformers has no such module, only simcse_pl loads it")
    with atomic_write(folder, last=SETTINGS_FILE) as new:
        encoder.save_pretrained(new)
        if arguments.onnx or arguments.int8:
            messages = write_onnx(encoder, new / "onnx", load_sample("test").sentences, arguments.int8)
            for file, message in messages.items():
                print(f"{file}: {message}", file=sys.stderr)  # standard output has the folder only
        measured, name = [result for _, result in results if isinstance(result, Result)], folder.absolute().name
        trained_in = run_folder(arguments.encoder)
        figures = encoder_figures(measured, [read_run(trained_in, name)] if trained_in else [])
        images = {title: png(figure) for title, figure in figures.items()}
        published = (repository, arguments.license, arguments.language)
        write_card(new, name, encoder, training, encoder_tables(measured), images, *published)
    print(folder)
    if repository:
        print(push(folder, repository, arguments.private))


def _load_encoder(arguments: argparse.Namespace) -> SentenceEncoder:
    encoder = load_selected(arguments.encoder, arguments)
    encoder.normalize |= arguments.normalize
    if arguments.postprocess:
        if encoder.postprocess:
            raise UserError(f"--postprocess: {arguments.encoder} already has one ({encoder.postprocess.name})")
        postprocess = load_postprocess(arguments.postprocess)
        postprocess.check_width(encoder.dim)
        encoder.postprocess = postprocess
    return encoder


def push(folder: Path, repository: str, private: bool) -> str:
    """Upload a folder as a model repository, created if it does not exist, and return its address."""
    api = HfApi()
    try:
        url = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=url.repo_id, folder_path=folder, commit_message="Upload a sentence encoder")
    except Exception as error:  # of many types
        raise UserError(f"{folder} is written, but the upload failed: {hub.reason(error)}") from error
    return str(url)
