"""Record what the official code of published methods computes, for tests/fidelity.

    python -m benchmarks.fidelity REPOSITORIES

REPOSITORIES has the official repositories, in folders called OWNER+NAME, at the commits in records.yaml and
evaluation.yaml of tests/fidelity/records. The code of most needs transformers 4.33 and numpy 1.26, in an environment of
their own without this project. The code of BERT-whitening also needs prettytable and requests.
"""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import yaml

from benchmarks.fidelity import common, decoders, evaluation, forks, frameworks, simcse, templates, tokens

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("repositories", type=Path, help="the folder of the repositories")
folder = parser.parse_args().repositories
common.save_models()
versions = {name: version(name) for name in ("torch", "transformers", "numpy")}
records = {}
for method in (simcse, templates, forks, frameworks, decoders):
    for record in method.records(folder):
        records[record.name] = record.save()
        print(record.name, float(record.tensors["loss"]))
text = yaml.safe_dump({"versions": versions, "records": records}, sort_keys=False, allow_unicode=True, width=120)
(common.RECORDS / "records.yaml").write_text(text)
ids = [f" {json.dumps(record, ensure_ascii=False)}" for record in tokens.records(folder)]
(common.RECORDS / "tokens.json").write_text("[\n" + ",\n".join(ids) + "\n]\n")
evaluation.record(folder)
