"""A server of embeddings.

    pip install fastapi uvicorn
    ENCODER=outputs/mine/encoder uvicorn examples.serve:app
    curl --json '{"inputs": ["A man rides a horse."]}' http://127.0.0.1:8000/embed

The answer is a list with one embedding per sentence, of length 1. `"prompt_name": "query"` selects a prompt of the
encoder.
"""

import os

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from simcse_pl import SimCSE
from simcse_pl.utils.errors import UserError

simcse = SimCSE(os.environ["ENCODER"])
app = FastAPI()


class Sentences(BaseModel):
    """A request."""

    inputs: list[str]
    prompt_name: str | None = None


@app.post("/embed")
async def embed(sentences: Sentences) -> list[list[float]]:
    """Return the embeddings [sentences, dimensions]."""  # async, so one request at a time: a tokenizer has a state
    try:
        vectors: list[list[float]] = simcse.encode(sentences.inputs, prompt_name=sentences.prompt_name).tolist()
    except UserError as error:
        raise HTTPException(422, str(error)) from error
    return vectors
