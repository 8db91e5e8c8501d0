"""Make triplets from sentences: a language model writes a positive and a hard negative for each.

The language model is any OpenAI-compatible server, or a model of transformers. Its answers are kept in the file
OUT.answers.jsonl, so the same command continues after an interruption, and other filters ask nothing again.
"""

import argparse
import hashlib
import itertools
import json
import math
import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, ValidationError

from simcse_pl.tools.answers import sentence_of, verdict, without_thoughts
from simcse_pl.tools.common import add_column, add_encoder, load_simcse, read_sentences
from simcse_pl.tools.conversion import USED, ConversionStats, check_paths, write_csv
from simcse_pl.tools.language_models import Answer, LocalModel, Messages, Server
from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.files import read_lines, reraise_write_errors
from simcse_pl.utils.tensors import Encode, paired_similarity
from simcse_pl.utils.terminal import integer, real, show, tracked

POSITIVE, NEGATIVE, CHECK = "positive", "negative", "check"
_LIMIT = 128  # tokens of an answer
_FIRST_ANSWERS, _MOST_CUT = 20, 0.1  # after so many answers, a larger share of cut ones ends the command
_CUT = "an answer cut by max_tokens of --settings, or without text"
_LENGTH_RATIO = 3  # an answer may have as many times the characters of its sentence, or as few
_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}  # as vLLM, SGLang and transformers take it
PROMPTS = str(Path(__file__).with_name("prompts.yaml"))
Triplet = tuple[str, ...]  # a sentence, its positive and its hard negative
Question = tuple[str, str, str]  # its kind, a sentence, and for CHECK a hypothesis
Instruction = Annotated[str, Field(pattern=r"\{sentence\}")]


class Prompts(BaseModel, extra="forbid"):
    """The content of a file of prompts. Of several instructions of a kind, one is drawn for each question."""

    positive: list[Instruction]
    negative: list[Instruction]
    check: list[Annotated[Instruction, Field(pattern=r"\{hypothesis\}")]]
    refusal: str  # a regular expression that matches answers which are not a sentence


@dataclass
class Synthesizer:
    """Asks a language model about sentences, and keeps its answers in a file, so that nothing is asked twice."""

    model: Server | LocalModel
    prompts: Prompts
    seed: int  # determines, with the question, which instruction
    path: Path  # lines of JSON; the key of an answer is a hash of the model's settings and the conversation
    answers: dict[str, str | None] = field(default_factory=dict)  # by key; None is one that this limit cuts
    left_out: Counter[str] = field(default_factory=Counter)  # sentences, by the reason
    tokens: Counter[str] = field(default_factory=Counter)  # read and written by the model

    def __post_init__(self) -> None:
        for line in read_lines(self.path) if self.path.exists() else ():
            with suppress(ValueError, TypeError, LookupError):  # such as half a line of a process that was killed
                row = json.loads(line)
                if row["answer"] is not None or row["max_tokens"] == self.model.settings.get("max_tokens"):
                    self.answers[row["key"]] = row["answer"]

    def messages(self, question: Question) -> Messages:
        """Return the conversation of a question."""
        kind, sentence, hypothesis = question
        instruction = random.Random(f"{self.seed} {question}").choice(getattr(self.prompts, kind))
        text = instruction.replace("{hypothesis}", hypothesis).replace("{sentence}", sentence)
        return [{"role": "user", "content": text}]

    def key(self, question: Question) -> str:
        """Return the key of a question in the file."""
        settings = self.model.settings | {"max_tokens": _LIMIT}  # a whole answer does not depend on the limit
        settings = {name: x for name, x in settings.items() if {name: x} != _THINKING}
        return hashlib.sha256(json.dumps([settings, self.messages(question)]).encode()).hexdigest()

    def ask(self, questions: Sequence[Question]) -> list[str | None]:
        """Return the answers in the order of the questions; None for one that is cut or has no text but was paid for.

        The model is asked for such an answer again with another limit of tokens, and for an empty one next time. Raise
        UserError if more than a tenth of at least 20 answers are cut.
        """
        missing = [question for question in questions if self.key(question) not in self.answers]
        size, workers, limit = self.model.batch_size, self.model.workers, self.model.settings.get("max_tokens")
        starts = range(0, len(missing), size)
        batches = (missing[start : start + size] for start in starts)
        with reraise_write_errors(self.path.parent), self.path.open("a") as file, ThreadPool(workers) as pool:
            file.write("\n")  # after half a line
            for batch, answers in tracked(pool.imap_unordered(self._ask, batches), "asking", len(starts)):
                for question, (text, read, written, cut) in zip(batch, answers, strict=True):
                    lost = cut or (not without_thoughts(text) and bool(text or written))
                    self.tokens.update(read=read, written=written, answers=1, cut=lost)
                    if text or lost:
                        key, kept = self.key(question), None if lost else text
                        self.answers[key] = kept
                        row = {"key": key, "question": question, "answer": kept, "max_tokens": limit}
                        file.write(json.dumps(row) + "\n")
                file.flush()
                if self.tokens["answers"] >= _FIRST_ANSWERS and self.tokens["cut"] > _MOST_CUT * self.tokens["answers"]:
                    why = "{cut} of {answers} answers are cut by max_tokens, or have no text".format(**self.tokens)
                    raise UserError(f"""{why}: set --settings '{{"max_tokens": 1024}}', or a model without thoughts""")
        return [self.answers.get(self.key(question), "") for question in questions]

    def _ask(self, batch: list[Question]) -> tuple[list[Question], list[Answer]]:
        return batch, self.model.answer([self.messages(question) for question in batch])

    def estimate(self, sentences: Sequence[str], check: bool) -> tuple[int, int, int, int]:
        """Return the numbers of kept answers and of requests, at most, and estimates of the tokens read and written.

        A token is estimated as 4 bytes. For sentences to check that are not known yet, the given one is taken.
        """
        questions = [(kind, sentence, "") for kind in (POSITIVE, NEGATIVE) for sentence in sentences]
        for question in [*questions] * check:
            answer = self._sentence(self.answers.get(self.key(question)), question[1])
            questions.append((CHECK, question[1], answer or question[1]))
        missing = [question for question in questions if self.key(question) not in self.answers]
        read = sum(len(message["content"].encode()) for question in missing for message in self.messages(question))
        written = sum(len(sentence.encode()) for kind, sentence, _ in missing if kind != CHECK)
        return len(questions) - len(missing), len(missing), read // 4, written // 4

    def triplets(self, sentences: Sequence[str], check: bool) -> list[Triplet]:
        """Return the triplets of different sentences, in their order. `left_out` counts the others by reason.

        With `check`, the model is asked again if the positive follows from the sentence, and if the negative
        contradicts it.
        """
        answered = [self.ask([(kind, text, "") for text in sentences]) for kind in (POSITIVE, NEGATIVE)]
        triplets: list[Triplet] = []
        known: set[str] = set()
        for given, *replies in zip(sentences, *answered, strict=True):
            triplet = (given, *(self._sentence(reply, given) for reply in replies))
            letters = {re.sub(r"\W", "", text).casefold() for text in triplet}
            ratios = [len(text) / len(triplet[0]) for text in triplet]
            if None in replies:
                self.left_out[_CUT] += 1
            elif not all(triplet):
                self.left_out["no answer, a refusal, or a doubtful answer"] += 1
            elif len(letters) < 3 or letters & known:
                self.left_out["an answer equal to the sentence or an earlier answer"] += 1
            elif min(ratios) < 1 / _LENGTH_RATIO or max(ratios) > _LENGTH_RATIO:
                self.left_out["an answer too short or too long"] += 1
            else:
                triplets.append(triplet)
                known |= letters
        for position, label in ((1, 1.0), (2, 0.0)) if check else ():
            replies = self.ask([(CHECK, triplet[0], triplet[position]) for triplet in triplets])
            confirmed = [verdict(reply or "") == label for reply in replies]
            self.left_out["an answer that the model does not confirm (--check)"] += confirmed.count(False)
            triplets = [*itertools.compress(triplets, confirmed)]
        return triplets

    def _sentence(self, answer: str | None, given: str) -> str:
        sentence = sentence_of(answer or "", given)
        return "" if re.search(self.prompts.refusal, sentence.replace("’", "'")) else sentence


def filter_by_similarity(encode: Encode, triplets: Sequence[Triplet], lowest: float, highest: float) -> list[Triplet]:
    """Return the triplets whose positive has at least the lowest, and whose negative at most the highest cosine."""
    anchors, *others = (encode(list(texts)) for texts in zip(*triplets, strict=True))
    positive, negative = (paired_similarity(anchors, vectors) for vectors in others)
    return [*itertools.compress(triplets, (positive >= lowest) & (negative <= highest))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sentences", metavar="SENTENCES", help="sentences: .txt, .csv, .tsv, .json, .jsonl or .parquet")
    parser.add_argument("out", metavar="OUT", help="output file (.csv) with the columns anchor, positive and negative")
    add_column(parser)
    text = "address of a server, such as http://localhost:8000/v1; its key is read from OPENAI_API_KEY"
    parser.add_argument("--server", metavar="URL", help=text)
    text = "name of the model on the server; without --server, a chat model: a folder, a hub name or package:NAME"
    parser.add_argument("--model", required=True, metavar="MODEL", help=text)
    text = "settings of a request, added to temperature 0.7, max_tokens 128 and no thinking; null removes one"
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON", help=text)
    text = "requests at a time (default: %(default)s)"
    parser.add_argument("--workers", type=integer, default=8, metavar="N", help=text)
    text = "file of instructions, to be written like the default, simcse_pl/tools/prompts.yaml"
    parser.add_argument("--prompts", default=PROMPTS, metavar="FILE", help=text)
    parser.add_argument("--seed", type=int, default=42, help="seed of the instructions (default: %(default)s)")
    text = "ask again if the positive follows from the sentence and the negative contradicts it; leave out the others"
    parser.add_argument("--check", action="store_true", help=text)
    add_encoder(parser, "--encoder")
    parser.add_argument("--min-positive", type=real, default=-math.inf, metavar="X", help="lowest cosine of a positive")
    parser.add_argument("--max-negative", type=real, default=math.inf, metavar="X", help="highest cosine of a negative")
    text = "price of a million tokens that are read, and of a million that are written"
    parser.add_argument("--price", nargs=2, type=real, metavar="X", help=text)
    parser.add_argument("--dry-run", action="store_true", help="print the number of requests and tokens, and stop")


def run(arguments: argparse.Namespace) -> None:
    out = Path(arguments.out)
    check_paths([Path(arguments.sentences)], out)
    limits = arguments.min_positive, arguments.max_negative
    if bool(arguments.encoder) != (limits != (-math.inf, math.inf)):
        raise UserError("--encoder and --min-positive or --max-negative leave out triplets together: give both")
    given = list(read_sentences(arguments.sentences, arguments))
    sentences = list(dict.fromkeys(given))
    synthesizer = _synthesizer(arguments, out.with_name(f"{out.name}.answers.jsonl"))
    kept, requests, read, written = synthesizer.estimate(sentences, arguments.check)
    limit = requests * (synthesizer.model.settings.get("max_tokens") or 0)
    print(f"at most {requests} requests; {kept} answers are there already")
    at_most = f", at most {limit}" if limit else ""
    print(f"about {read} tokens to read and {written} to write{at_most}", flush=True)
    if arguments.price:
        reading, writing = (price / 1e6 for price in arguments.price)
        about, most = (read * reading + count * writing for count in (written, limit))
        at_most = f", at most {most:.4f}" if limit else ""
        print(f"price: about {about:.4f}{at_most}")
    if arguments.dry_run:
        return
    with reraise_write_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
    triplets = synthesizer.triplets(sentences, arguments.check)
    stats = ConversionStats(Counter({"the same sentence again": len(given) - len(sentences)}) + synthesizer.left_out)
    if arguments.encoder and triplets:
        simcse, count = load_simcse(arguments), len(triplets)
        triplets = filter_by_similarity(simcse.encode, triplets, *limits)
        stats["a cosine beyond --min-positive or --max-negative"] = count - len(triplets)
    stats[USED] = write_csv(out, ["anchor", "positive", "negative"], triplets, stats)
    show(stats.table("sentences").printed())
    print(f"{synthesizer.tokens['read']} tokens read and {synthesizer.tokens['written']} written in this run")
    print(f"{stats[USED]} rows in {out}")


def _synthesizer(arguments: argparse.Namespace, answers: Path) -> Synthesizer:
    settings: dict[str, Any] = {"model": arguments.model, "temperature": 0.7, "max_tokens": _LIMIT, **_THINKING}
    settings |= arguments.settings
    settings = {name: value for name, value in settings.items() if value is not None}
    with reraise_as(arguments.prompts, users_too=True):
        try:
            prompts = Prompts(**yaml.safe_load("\n".join(read_lines(Path(arguments.prompts)))))
        except ValidationError as error:
            problem = error.errors()[0]
            raise UserError(f"{problem['loc'][0]}={problem['input']}: {problem['msg']}") from error
    if arguments.server:
        key = os.environ.get("OPENAI_API_KEY")
        model: Server | LocalModel = Server(arguments.server, settings, key, arguments.workers)
    else:
        model = LocalModel(settings, arguments.device, arguments.batch_size or 8)
    return Synthesizer(model, prompts, arguments.seed, answers)
