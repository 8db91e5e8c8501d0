"""Make static embeddings from an encoder: a vector per token, in the format of model2vec."""

import argparse

import torch

from simcse_pl.models.static_embeddings import distill
from simcse_pl.tools.common import add_encoder, load_selected, new_folder
from simcse_pl.utils.errors import UserError
from simcse_pl.utils.terminal import integer, real


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_encoder(parser, computes=False)
    parser.add_argument("folder", metavar="FOLDER", help="output folder; it must not contain files")
    text = "dimensions: the first principal components of the tokens' vectors (default: 256, or all if there are fewer)"
    parser.add_argument("--dim", type=integer, metavar="N", help=text)
    text = "a in the weight a / (a + frequency) of a token (default: %(default)s)"
    parser.add_argument("--sif", type=real, default=1e-4, metavar="A", help=text)


def run(arguments: argparse.Namespace) -> None:
    folder = new_folder(arguments.folder)
    encoder = load_selected(arguments.encoder, arguments)
    if torch.cuda.is_available():
        encoder.to("cuda")
    dim = arguments.dim or min(256, encoder.dim)
    if dim > encoder.dim:
        raise UserError(f"--dim {dim}: the vectors of {arguments.encoder} have {encoder.dim} dimensions")
    config = {"pooling": encoder.pooling, "apply_pca": dim, "sif_coefficient": arguments.sif}
    distill(encoder, dim, arguments.sif).save_pretrained(folder, **config)
    print(folder)
