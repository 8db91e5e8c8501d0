"""The search page and its endpoints: POST /search, and GET /encoders, which says what is searched."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from simcse_pl.inference.server.batching import Found, SearchBatcher
from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.errors import UserError

_PAGE = Path(__file__).parent / "page"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_BYTES_A_CHARACTER = 12  # in JSON at most: a pair of surrogates, \ud83d\ude00
_DIGITS = 4  # as `simcse search` has them


@dataclass(frozen=True)
class Limits:
    """What one request may ask.

    Args:
        queries: how many.
        characters: of a query.
        results: of a query, with each encoder.

    Raises:
        UserError: one that is below 1.
    """

    queries: int = 32
    characters: int = 1000
    results: int = 100

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise UserError(f"--max-{name} {value}: it must be at least 1")

    @property
    def body(self) -> int:
        """Bytes of a request, with room for whatever else it may hold."""
        return self.queries * self.characters * _BYTES_A_CHARACTER + (1 << 14)


@dataclass(frozen=True)
class Served:
    """An encoder that the page shows.

    Args:
        name: what it is called.
        simcse: the encoder, with an index.
        about: what else there is to say of it, by name.
    """

    name: str
    simcse: SimCSE
    about: dict[str, Any]


class Result(BaseModel):
    """A sentence, and its cosine similarity with the query."""

    sentence: str
    similarity: float


class Results(BaseModel):
    """What one encoder found: the nearest sentences of every query, the nearest first."""

    encoder: str
    results: list[list[Result]]


class Answer(BaseModel):
    """What POST /search answers: the results of every encoder."""

    encoders: list[Results]


class Encoders(BaseModel):
    """What GET /encoders answers: what is searched, and the limits of a request."""

    encoders: list[dict[str, Any]]
    limits: dict[str, int]


def application(served: Sequence[Served], limits: Limits, hosts: Sequence[str]) -> FastAPI:
    """The page and its endpoints.

    Args:
        served: the encoders, side by side.
        limits: of a request.
        hosts: names that a browser may call this server by; `*` for any. A page of another site can have its own
            name point here, and would then read what it asks.
    """

    class Search(BaseModel):
        """What POST /search takes: one or more queries; `top_k` and `threshold` are those of SimCSE.search."""

        model_config = ConfigDict(extra="forbid", strict=True)

        queries: Annotated[
            list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=limits.characters)]],
            Field(min_length=1, max_length=limits.queries),
        ]
        top_k: Annotated[int, Field(ge=1, le=limits.results)] = min(5, limits.results)
        threshold: Annotated[float | None, Field(ge=-1, le=1)] = None

    # FastAPI's pages of documentation load scripts from elsewhere: /openapi.json is what there is
    app = FastAPI(title="simcse_pl", docs_url=None, redoc_url=None)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=limits.body)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    app.middleware("http")(_with_headers)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_refused)
    app.exception_handler(Exception)(_failed)
    waiting = SearchBatcher([one.simcse for one in served])

    @app.post("/search")
    async def search(asked: Search) -> Answer:
        found = await waiting.search(asked.queries, asked.top_k, asked.threshold)
        return Answer(encoders=[_results(one.name, own) for one, own in zip(served, found, strict=True)])

    @app.get("/encoders")
    async def encoders() -> Encoders:
        rows = [{"encoder": one.name, "sentences": len(one.simcse.index or ()), **one.about} for one in served]
        return Encoders(encoders=rows, limits=asdict(limits))

    app.frontend("/", directory=_PAGE, fallback=None)
    return app


def _results(name: str, found: Found) -> Results:
    results = [
        [Result(sentence=one.sentence, similarity=round(one.similarity, _DIGITS)) for one in neighbours]
        for neighbours in found
    ]
    return Results(encoder=name, results=results)


async def _with_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    if response.headers.get("Content-Type", "").startswith("text/plain"):  # Starlette's own errors
        text = b"".join([part async for part in response.body_iterator]).decode()  # type: ignore[attr-defined]
        response = _line(text or HTTPStatus(response.status_code).phrase, response.status_code)
    response.headers.update(_HEADERS)
    return response


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = first["loc"][1:]
    if not place or first["type"] == "json_invalid":
        return _line('the body must be JSON, sent as application/json: {"queries": ["..."]}', 422)
    return _line(f"{'.'.join(map(str, place))}: {first['msg']}", 422)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _line(error.detail, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    return _line("the search failed: the server's terminal says why", 500)  # there uvicorn shows the error


def _line(error: str, status: int) -> Response:
    return JSONResponse({"error": error}, status)
