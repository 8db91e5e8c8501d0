"""A server of embeddings and of a search.

    pip install fastapi uvicorn
    ENCODER=outputs/mine/encoder INDEX=outputs/mine/index uvicorn examples.serve:app
    curl --json '{"inputs": ["A man rides a horse."]}' http://127.0.0.1:8000/embed
    curl --json '{"inputs": ["Who rides?"], "top_k": 3}' http://127.0.0.1:8000/search

`/embed` answers with one embedding per sentence, of length 1. `"prompt_name": "query"` selects a prompt of the encoder.
`/search` needs INDEX, the folder of `simcse index`. It answers with the nearest sentences of each query.
"""

import os
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, PositiveInt

from simcse_pl import SimCSE
from simcse_pl.utils.errors import UserError

simcse = SimCSE(os.environ["ENCODER"])
if folder := os.environ.get("INDEX"):
    simcse.load_index(folder)
app = FastAPI()


class Sentences(BaseModel, extra="forbid"):
    """A request."""

    inputs: list[str]
    prompt_name: str | None = None


class Queries(Sentences):
    """A request of a search."""

    top_k: PositiveInt = 5


@app.exception_handler(UserError)
async def refused(request: Request, error: UserError) -> JSONResponse:
    """Return an error of the request, such as an unknown prompt."""
    return JSONResponse({"detail": str(error)}, 422)


@app.post("/embed")
async def embed(sentences: Sentences) -> list[list[float]]:
    """Return the embeddings [sentences, dimensions]."""  # async, so one request at a time, on all cores
    vectors: list[list[float]] = simcse.encode(sentences.inputs, prompt_name=sentences.prompt_name).tolist()
    return vectors


@app.post("/search")
async def search(queries: Queries) -> list[list[dict[str, Any]]]:
    """Return the nearest sentences of each query, with their ids and cosines."""
    found = simcse.search(queries.inputs, threshold=None, top_k=queries.top_k, prompt_name=queries.prompt_name)
    ids = simcse.index.ids if simcse.index else {}
    return [[{"id": ids.get(one.sentence), **one._asdict()} for one in hits] for hits in found]
