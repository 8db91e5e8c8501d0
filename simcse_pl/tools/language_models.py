"""Language models that help to make training data.

A cross-encoder scores pairs for `simcse mine`. An OpenAI-compatible server, or a model of transformers, answers the
conversations of `simcse synthesize`.
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import requests
import torch
from requests.adapters import HTTPAdapter
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, TextGenerationPipeline
from urllib3 import Retry

from simcse_pl.models.sources import load_config, load_tokenizer, loading, loading_options
from simcse_pl.utils.errors import UserError, first_line, reraise_as
from simcse_pl.utils.tensors import to_device
from simcse_pl.utils.terminal import tracked

log = logging.getLogger(__name__)

Pair = tuple[str, str]
_LONGEST = 512  # tokens of a pair
Messages = list[dict[str, str]]  # each with its role, user or assistant, and its content

_RETRIES = 6  # after 0, 2, 4, 8, 16 and 32 seconds: limits are usually per minute
_BUSY = (408, 429, 500, 502, 503, 504)
_REJECTED = (400, 413, 422)  # such as by a filter of the content
_TIMEOUT = (10, 600)  # seconds to connect, and to wait for an answer


class Answer(NamedTuple):
    """An answer of a language model."""

    text: str = ""  # empty if there is none, or it was cut
    read: int = 0  # tokens
    written: int = 0
    cut: bool = False  # whether it was longer than the limit


class CrossEncoder:
    """A sequence classifier of transformers with one logit, such as BAAI/bge-reranker-v2-m3.

    Args:
        name: a folder, a hub name or package:NAME.
        device: where it computes.
        batch_size: pairs of similar length per forward pass.
    """

    def __init__(self, name: str, device: str | torch.device = "cpu", batch_size: int = 32) -> None:
        self.tokenizer, self.device, self.batch_size = load_tokenizer(name), torch.device(device), batch_size
        with loading(name) as source:
            if (count := load_config(source).num_labels) != 1:
                raise UserError(f"{name} has {count} logits; a cross-encoder that scores pairs has one")
            model = AutoModelForSequenceClassification.from_pretrained(source, **loading_options(source))
        if model.config.pad_token_id is None:
            model.config.pad_token_id = self.tokenizer.pad_token_id
        self.model = model.eval().to(self.device)

    @torch.inference_mode()
    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Return the logit of each pair. A terminal shows a progress bar."""
        longest = min(self.tokenizer.model_max_length, _LONGEST)
        order = sorted(range(len(pairs)), key=lambda i: -sum(map(len, pairs[i])))
        scores = torch.empty(len(pairs))
        for start in tracked(range(0, len(order), self.batch_size), "scoring"):
            indices = order[start : start + self.batch_size]
            sides = [list(side) for side in zip(*(pairs[index] for index in indices), strict=True)]
            inputs = self.tokenizer(*sides, truncation=True, max_length=longest, padding=True, return_tensors="pt")
            scores[indices] = self.model(**to_device(inputs, self.device)).logits[:, 0].float().cpu()
        return scores.tolist()


def rescore(
    score: Callable[[Sequence[Pair]], list[float]], rows: Iterable[tuple[str, ...]], negatives: int, margin: float = 0.0
) -> tuple[list[tuple[str, ...]], int]:
    """Keep the first negatives of each row that a cross-encoder scores below the positive by at least a margin.

    Args:
        score: returns the scores of pairs of an anchor and another sentence.
        rows: anchor, positive and candidates, as from `mine`.
        negatives: how many are kept; rows with fewer are left out.
        margin: a candidate above the positive's score minus this margin is left out.

    Returns:
        Rows of anchor, positive and negatives, then the scores of the positive and of the negatives as text; and the
        number of candidates that were left out.
    """
    rows = list(rows)
    scores = iter(score([(anchor, other) for anchor, *others in rows for other in others]))
    kept_rows: list[tuple[str, ...]] = []
    left_out = 0
    for anchor, positive, *candidates in rows:
        positive_score = next(scores)
        scored = [(candidate, next(scores)) for candidate in candidates]
        kept = [(candidate, value) for candidate, value in scored if value <= positive_score - margin]
        left_out += len(scored) - len(kept)
        if len(kept) >= negatives:
            texts, own_scores = zip(*kept[:negatives], strict=True)
            written = (f"{value:.6g}" for value in (positive_score, *own_scores))
            kept_rows.append((anchor, positive, *texts, *written))
    return kept_rows, left_out


@dataclass
class Server:
    """An OpenAI-compatible server."""

    url: str  # such as http://localhost:8000/v1
    settings: dict[str, Any]  # the body of each request, without the messages
    key: str | None  # the API key, if the server needs one
    workers: int  # requests at a time
    batch_size: ClassVar = 1

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        self.name = re.sub(r"//\S*@", "//", f"--server {self.url}")  # without a password
        self.key = (self.key or "").strip()  # of a file of Windows, it ends in \r
        if not re.fullmatch("[!-~]*", self.key):  # requests would print it
            raise UserError("OPENAI_API_KEY contains white space or other characters that no key has")
        how: Any = {"status_forcelist": _BUSY, "backoff_factor": 1, "allowed_methods": None, "raise_on_status": False}
        self.session = requests.Session()
        self.session.headers.update({"Authorization": f"Bearer {self.key}"} if self.key else {})
        for scheme in ("http://", "https://"):
            adapter = HTTPAdapter(pool_maxsize=self.workers, max_retries=Retry(_RETRIES, connect=0, **how))
            self.session.mount(scheme, adapter)
        self.rejected, self.has_answered = 0, False

    def answer(self, batch: list[Messages]) -> list[Answer]:
        """Return the answer to a batch of one conversation, empty if the server rejects it or twice sends no answer.

        Raises:
            UserError: the address, the model or the key is wrong, or the server is busy for more than a minute.
        """
        for _ in range(2):
            try:
                reply = self.session.post(self.url, json=self.settings | {"messages": batch[0]}, timeout=_TIMEOUT)
            except requests.RequestException as error:
                raise UserError(f"no answer from {self.name}: {first_line(error).replace(self.url, 'it')}") from error
            content = f"{reply.status_code} {' '.join(reply.text.split())[:300]}"
            if reply.status_code in _REJECTED:
                if "chat_template_kwargs" in content:  # OpenAI's own server does not know it
                    self.settings.pop("chat_template_kwargs", None)
                    continue
                break
            if not reply.ok:
                raise UserError(f"{self.name} returns {content}: check it, --model, and the key in OPENAI_API_KEY")
            with suppress(ValueError, LookupError, TypeError, AttributeError):
                choice, usage = reply.json()["choices"][0], reply.json().get("usage") or {}
                ended = (reason := choice.get("finish_reason")) not in ("length", "content_filter")
                text, self.has_answered = choice["message"].get("content"), True
                if isinstance(text, list):  # parts: thoughts, and text
                    text = "".join(part.get("text", "") for part in text)
                counts = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
                answer = text if isinstance(text, str) and ended else ""
                return [Answer(answer, *counts, cut=reason == "length")]
        if reply.ok and not self.has_answered:
            raise UserError(f"{self.name} is not OpenAI-compatible, it returns {content}")
        self.rejected += 1
        if self.rejected == 1:
            log.warning("a request without an answer is left out: %s", content)
        return [Answer()]


@dataclass
class LocalModel:
    """A model of transformers with a chat template."""

    # model, max_tokens, temperature (0: the most probable tokens), chat_template_kwargs, others of `generate`
    settings: dict[str, Any]
    device: str | None  # such as cuda; None for a GPU if available
    batch_size: int  # conversations answered at once
    workers: ClassVar = 1

    def __post_init__(self) -> None:
        with loading(name := self.settings["model"]) as source:
            options = loading_options(source) | {"config": load_config(source), "dtype": "auto"}
            self.tokenizer = load_tokenizer(name)
            self.tokenizer.padding_side = "left"
            model = AutoModelForCausalLM.from_pretrained(source, **options)
            self.generate = TextGenerationPipeline(model=model, tokenizer=self.tokenizer, device=self.device)

    def answer(self, batch: list[Messages]) -> list[Answer]:
        """Return the answer to each conversation of a batch; raise UserError if the model has no chat template."""
        options = dict(self.settings)
        name, heat, given = (options.pop(key, 0) for key in ("model", "temperature", "max_tokens"))
        limit: Any = given or 1024  # or a model may never end
        template_options = options.pop("chat_template_kwargs", {})
        options |= {"do_sample": True, "temperature": heat} if heat else {"do_sample": False}
        with reraise_as(f"--model {name}"):
            how = {"add_generation_prompt": True, "return_dict": False} | template_options
            prompts = self.tokenizer.apply_chat_template(batch, **how)
            options |= {"tokenizer_encode_kwargs": template_options, "max_new_tokens": limit}
            options |= {"return_full_text": False, "batch_size": len(batch)}
            replies = self.generate(batch, **options)
        texts: list[Any] = [reply["generated_text"] for (reply,) in replies]
        counts = [len(self.tokenizer(text, add_special_tokens=False).input_ids) for text in texts]
        return [
            Answer("" if count >= limit else text, len(prompt), count, count >= limit)
            for text, prompt, count in zip(texts, prompts, counts, strict=True)
        ]
