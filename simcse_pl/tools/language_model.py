"""Language models that answer conversations: an OpenAI-compatible server, or a model of transformers."""

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import requests
from requests.adapters import HTTPAdapter
from transformers import AutoModelForCausalLM, TextGenerationPipeline
from urllib3 import Retry

from simcse_pl.models.sources import load_config, load_tokenizer, loading, loading_options
from simcse_pl.utils.errors import UserError, first_line, reraise_as

log = logging.getLogger(__name__)

Messages = list[dict[str, str]]  # each with its role, user or assistant, and its content
Answer = tuple[str, int, int]  # a text, empty if there is none or it does not end; the tokens read and written

_RETRIES = 6  # after 0, 2, 4, 8, 16 and 32 seconds: limits are usually per minute
_BUSY = (408, 429, 500, 502, 503, 504)
_REJECTED = (400, 413, 422)  # such as by a filter of the content
_TIMEOUT = (10, 600)  # seconds to connect, and to wait for an answer


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
        how: Any = {"status_forcelist": _BUSY, "backoff_factor": 1, "allowed_methods": None, "raise_on_status": False}
        self.session = requests.Session()
        self.session.headers.update({"Authorization": f"Bearer {self.key}"} if self.key else {})
        for scheme in ("http://", "https://"):
            adapter = HTTPAdapter(pool_maxsize=self.workers, max_retries=Retry(_RETRIES, connect=0, **how))
            self.session.mount(scheme, adapter)
        self.rejected = 0

    def answer(self, batch: list[Messages]) -> list[Answer]:
        """Return the answer to a batch of one conversation.

        Raises:
            UserError: the address, the model or the key is wrong, or the server is busy for more than a minute.
        """
        try:
            reply = self.session.post(self.url, json=self.settings | {"messages": batch[0]}, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise UserError(f"no answer from --server {self.url}: {first_line(error)}") from error
        content = f"{reply.status_code} {' '.join(reply.text.split())[:300]}"
        if reply.status_code in _REJECTED:
            self.rejected += 1
            if self.rejected == 1:
                log.warning("the server rejects a request, which is left out: %s", content)
            return [("", 0, 0)]
        if not reply.ok:
            raise UserError(f"--server {self.url} returns {content}: check it, --model, and the key in OPENAI_API_KEY")
        with reraise_as(f"--server {self.url} is not OpenAI-compatible, it returns {content}"):
            choice, usage = reply.json()["choices"][0], reply.json().get("usage") or {}
            ended = choice.get("finish_reason") not in ("length", "content_filter")
            text = (choice["message"].get("content") or "") * ended
        return [(text, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))]


@dataclass
class LocalModel:
    """A model of transformers with a chat template."""

    settings: dict[str, Any]  # model, max_tokens, temperature (0: the most probable tokens), others of `generate`
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
        name, heat, limit = (options.pop(key, 0) for key in ("model", "temperature", "max_tokens"))
        options |= {"do_sample": True, "temperature": heat} if heat else {"do_sample": False}
        with reraise_as(f"--model {name}"):
            prompts = self.tokenizer.apply_chat_template(batch, add_generation_prompt=True, return_dict=False)
            options |= {"max_new_tokens": limit, "return_full_text": False, "batch_size": len(batch)}
            replies = self.generate(batch, **options)
        texts = [reply["generated_text"] for (reply,) in replies]
        counts = [len(self.tokenizer(text).input_ids) for text in texts]
        parts = zip(texts, prompts, counts, strict=True)
        return [(text * (count < limit), len(prompt), count) for text, prompt, count in parts]
