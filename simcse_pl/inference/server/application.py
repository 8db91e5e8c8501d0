"""The search page and its endpoints POST /search and GET /encoders."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from simcse_pl.inference.server.batching import SearchBatcher
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError

_PAGE = Path(__file__).parent / "page"
_BYTES_PER_CHARACTER = 12  # in JSON at most: a surrogate pair, \ud83d\ude00
_DIGITS = 4  # as in the output of `simcse search`


@dataclass(frozen=True)
class Limits:
    """Limits of one request.

    Args:
        queries: maximum number of queries.
        characters: maximum number of characters per query.
        top_k: maximum number of sentences per query and encoder.

    Raises:
        UserError: a limit is below 1.
    """

    queries: int = 32
    characters: int = 1000
    top_k: int = 100

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise UserError(f"--max-{name} {value}: it must be at least 1")


@dataclass(frozen=True)
class Served:
    """An encoder of the page.

    Args:
        name: heading of its results.
        simcse: the encoder, with an index.
        about: its architecture and settings, by name.
    """

    name: str
    simcse: SimCSE
    about: dict[str, Any]


def build_app(served: Sequence[Served], limits: Limits) -> FastAPI:
    """Return the page with its endpoints.

    Args:
        served: the encoders, shown side by side.
        limits: of a request.
    """

    class Search(BaseModel):
        """One or more queries; `top_k` and `threshold` are those of SimCSE.search."""

        model_config = ConfigDict(extra="forbid", strict=True)

        queries: Annotated[
            list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=limits.characters)]],
            Field(min_length=1, max_length=limits.queries),
        ]
        top_k: Annotated[int, Field(ge=1, le=limits.top_k)] = min(5, limits.top_k)
        threshold: Annotated[float | None, Field(ge=-1, le=1)] = None

    app = FastAPI(title="simcse_pl", docs_url=None, redoc_url=None)  # these load scripts from the network
    max_bytes = limits.queries * limits.characters * _BYTES_PER_CHARACTER + (1 << 14)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=max_bytes)
    batcher = SearchBatcher([one.simcse for one in served])

    @app.post("/search")
    async def search(request: Search) -> dict[str, Any]:
        found = await batcher.search(request.queries, request.top_k, request.threshold)
        return {
            "encoders": [
                {
                    "encoder": one.name,
                    "results": [
                        [{"sentence": near.sentence, "similarity": round(near.similarity, _DIGITS)} for near in query]
                        for query in queries
                    ],
                }
                for one, queries in zip(served, found, strict=True)
            ]
        }

    @app.get("/encoders")
    async def encoders() -> dict[str, Any]:
        rows = [{"encoder": one.name, "sentences": len(one.simcse.index or ()), **one.about} for one in served]
        return {"encoders": rows, "limits": asdict(limits)}

    app.mount("/", StaticFiles(directory=_PAGE, html=True))
    return app
