"""Write an encoder as a folder that sentence-transformers and transformers load, with a model card; to share, too."""

import argparse
import shutil
import sys
from pathlib import Path

from rich.console import Console

from simcse_pl.cli.common import add_encoder
from simcse_pl.data.senteval.sts_sets import load_sample
from simcse_pl.export.fingerprint import fingerprint
from simcse_pl.export.model_card import trained_by, write_card
from simcse_pl.export.onnx import write_onnx
from simcse_pl.export.push_to_hub import check_can_push, push
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.encoder_files import SETTINGS_FILE
from simcse_pl.models.load import load_encoder
from simcse_pl.models.sentence_transformers_format import check_pooling
from simcse_pl.postprocessing.saved import load as load_postprocess
from simcse_pl.results.evaluation_results import Result, read
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.files import atomic_write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See simcse_pl.cli."""
    add_encoder(parser, computes=False)
    parser.add_argument("folder", metavar="FOLDER", help="that is made")
    parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1")
    parser.add_argument("--postprocess", metavar="FOLDER", help="`postprocess`, which evaluate.py fitted: linear ones")
    parser.add_argument("--onnx", action="store_true", help="ONNX too, compared with the encoder to 1e-4")
    parser.add_argument("--int8", action="store_true", help="and one with weights of 8 bits: cosines above 0.98")
    parser.add_argument(
        "--results", nargs="+", default=[], metavar="FOLDER", help="of evaluate.py, whose scores the model card shows"
    )
    parser.add_argument("--license", help="for the hub, as apache-2.0")
    parser.add_argument("--language", help="for the hub, as en")
    parser.add_argument("--push-to-hub", metavar="NAME", help="upload the folder, as NAME or OWNER/NAME")
    parser.add_argument("--private", action="store_true", help="others do not see it on the hub")


def run(arguments: argparse.Namespace) -> None:
    """See simcse_pl.cli."""
    folder = Path(arguments.folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already: give a new folder, or remove it first")
    if arguments.private and not arguments.push_to_hub:
        raise UserError("--private: nothing is uploaded without --push-to-hub")
    if arguments.push_to_hub:
        check_can_push(arguments.push_to_hub)
    results = [_results(path) for path in arguments.results]
    trained = trained_by(arguments.encoder)
    encoder = _encoder(arguments)
    check_pooling(encoder.pooling, encoder.backbone.config.num_hidden_layers)
    own = fingerprint(encoder) if results else None
    for path, result in zip(arguments.results, results, strict=True):
        if result.fingerprint != own:
            raise UserError(
                f"--results {path}: measured with other weights, pooling, max_length, normalization or post-processing "
                "than are exported; measure this encoder, or leave out --results"
            )
    console = Console(stderr=True)
    try:
        with atomic_write(folder, last=SETTINGS_FILE) as new:
            encoder.save_pretrained(new)
            if arguments.onnx or arguments.int8:
                with console.status("writing ONNX, and comparing it with the encoder"):
                    found = write_onnx(encoder, new / "onnx", load_sample("test").sentences, arguments.int8)
                for file, difference in found.items():
                    print(f"{file}: {difference}", file=sys.stderr)  # standard output has the folder alone
            repository, about = arguments.push_to_hub, (arguments.license, arguments.language)
            write_card(new, folder.absolute().name, encoder, trained, results, repository, *about)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it was empty, or not there
        raise
    print(folder)
    if arguments.push_to_hub:
        with console.status(f"uploading to {arguments.push_to_hub}"):
            print(push(folder, arguments.push_to_hub, arguments.private))


def _encoder(arguments: argparse.Namespace) -> SentenceEncoder:
    encoder = load_encoder(arguments.encoder, arguments.pooling, max_length=arguments.max_length)
    if not isinstance(encoder, SentenceEncoder):
        raise UserError(f"{arguments.encoder} is a file of word vectors: there is no transformer to export")
    encoder.normalize |= arguments.normalize
    if arguments.postprocess:
        if encoder.postprocess:
            raise UserError(f"--postprocess: {arguments.encoder} has one already ({encoder.postprocess.name})")
        encoder.postprocess = load_postprocess(arguments.postprocess)
        encoder.encode([])  # one that was fitted on other dimensions is told now
    return encoder


def _results(path: str) -> Result:
    match read(path):
        case Result() as result:
            return result
    raise UserError(f"--results {path} is a training run, whose scores are known where its encoder is given")
