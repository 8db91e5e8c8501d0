"""The search page and its endpoints POST /search and GET /encoders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from simcse_pl.inference.server.batching import SearchBatcher
from simcse_pl.inference.simcse import SimCSE

_PAGE = Path(__file__).parent / "page"
_MAX_TOP_K = 100
_BYTES_PER_CHARACTER = 12  # in JSON at most: a surrogate pair, \ud83d\ude00
_DIGITS = 4  # as in the output of `simcse search`


def build_app(
    encoders: Sequence[SimCSE],
    descriptions: Sequence[dict[str, Any]],
    max_queries: int = 32,
    max_characters: int = 1000,
    allowed_hosts: Sequence[str] = ("*",),
) -> FastAPI:
    """Return the page with its endpoints.

    Args:
        encoders: one or two encoders with an index, shown side by side.
        descriptions: name (`encoder`), architecture and settings of each.
        max_queries: maximum number of queries per request.
        max_characters: maximum number of characters per query.
        allowed_hosts: accepted values of the Host header; requests with other values get status 400.
    """

    class Search(BaseModel):
        """One or more queries; `top_k` and `threshold` are those of SimCSE.search."""

        model_config = ConfigDict(extra="forbid", strict=True)

        queries: Annotated[
            list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=max_characters)]],
            Field(min_length=1, max_length=max_queries),
        ]
        top_k: Annotated[int, Field(ge=1, le=_MAX_TOP_K)] = 5
        threshold: Annotated[float | None, Field(ge=-1, le=1)] = None

    app = FastAPI(title="simcse_pl", docs_url=None, redoc_url=None)  # these load scripts from the network
    max_bytes = max_queries * max_characters * _BYTES_PER_CHARACTER + (1 << 14)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=max_bytes)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(allowed_hosts), www_redirect=False)
    batcher = SearchBatcher(encoders)

    @app.post("/search")
    async def search(request: Search) -> dict[str, Any]:
        found = await batcher.search(request.queries, request.top_k, request.threshold)
        return {
            "encoders": [
                {
                    "encoder": description["encoder"],
                    "results": [
                        [{"sentence": near.sentence, "similarity": round(near.similarity, _DIGITS)} for near in query]
                        for query in results
                    ],
                }
                for description, results in zip(descriptions, found, strict=True)
            ]
        }

    @app.get("/encoders")
    async def describe() -> dict[str, Any]:
        sizes = [{"sentences": len(one.index or ())} for one in encoders]
        return {
            "encoders": [description | size for description, size in zip(descriptions, sizes, strict=True)],
            "limits": {"queries": max_queries, "characters": max_characters, "top_k": _MAX_TOP_K},
        }

    app.mount("/", StaticFiles(directory=_PAGE, html=True))
    return app
