"""The search page of `simcse serve`, GET /, and its JSON endpoint, POST /search."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jinja2
from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.middleware.trustedhost import TrustedHostMiddleware

from simcse_pl.inference.simcse import SimCSE
from simcse_pl.utils.text import Neighbour

_PAGE = Path(__file__).with_name("search_page.html.jinja")
_DIGITS = 4  # as in the output of `simcse search`

Sentence = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
TopK = Annotated[int, Field(ge=1, le=100)]
Cosine = Annotated[float, Field(ge=-1, le=1)]


class Search(BaseModel):
    """Queries; `top_k` and `threshold` are those of SimCSE.search."""

    model_config = ConfigDict(extra="forbid", strict=True)

    queries: Annotated[list[Sentence], Field(min_length=1, max_length=32)]
    top_k: TopK = 5
    threshold: Cosine | None = None


def build_app(encoders: Sequence[SimCSE], allowed_hosts: Sequence[str] = ("*",)) -> FastAPI:
    """Return the page and its endpoint.

    Args:
        encoders: encoders with an index, shown side by side.
        allowed_hosts: accepted values of the Host header; requests with other values get status 400.
    """
    app = FastAPI(title="simcse_pl", docs_url=None, redoc_url=None)  # these load scripts from the network
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(allowed_hosts), www_redirect=False)
    page = jinja2.Environment(autoescape=True).from_string(_PAGE.read_text("utf-8"))

    def find(queries: list[str], top_k: int, threshold: float | None) -> list[list[list[Neighbour]]]:
        return [encoder.search(queries, threshold=threshold, top_k=top_k) for encoder in encoders]

    # Both are `async` without a thread, so that they search one after the other.
    @app.get("/", response_class=HTMLResponse)
    async def show(q: Annotated[str, Query(max_length=1000)] = "", top_k: TopK = 10, threshold: Cosine = -1.0) -> str:
        found = [near for (near,) in find([q.strip()], top_k, threshold)] if q.strip() else [[] for _ in encoders]
        return page.render(q=q, top_k=top_k, threshold=threshold, columns=list(zip(encoders, found, strict=True)))

    @app.post("/search")
    async def search(request: Search) -> dict[str, Any]:
        found = find(request.queries, request.top_k, request.threshold)
        names = [encoder.name for encoder in encoders]
        return {
            "encoders": [
                {
                    "encoder": name,
                    "results": [[{"sentence": x, "similarity": round(y, _DIGITS)} for x, y in query] for query in near],
                }
                for name, near in zip(names, found, strict=True)
            ]
        }

    return app
