"""Record what the official code of BERT-flow computes, for tests/fidelity.

    python -m benchmarks.fidelity.flow REPOSITORIES

REPOSITORIES has bohanli/BERT-flow in the folder bohanli+BERT-flow. The code is for TensorFlow 1. It runs on
tensorflow-cpu 2.15 through tensorflow.compat.v1, with tf_slim in place of tf.contrib, in an environment of its own.
"""

import json
import operator
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
import tf_slim
import yaml
from safetensors.numpy import save_file

RECORDS = Path(__file__).parents[2] / "tests" / "fidelity" / "records"
PAIRS, WIDTH, STEPS, LR = 5, 16, 3, 1e-3
CONFIG = "config_l3_d3_w32"
FACTS: dict[str, Any] = {
    "repository": "bohanli/BERT-flow",
    "commit": "7fa8f6d",
    "versions": {name: version(name) for name in ("tensorflow-cpu", "tf_slim", "numpy")},
    "repaired": "TensorFlow 1 is tensorflow.compat.v1, and tf.contrib is tf_slim. In float64. 4 hidden units, not 32.",
    "released": [
        "avg-last-2 is the mean of the first and the last layer, because the layers have the indices -0 and -1.",
        "The fit reads BERT with dropout, 32 pairs at a time, each of its sentences as often as it occurs.",
        "The fit on STS-B reads train, or train, dev and test; that on another task, all its pairs.",
        "The fit does not begin with the data-dependent initialization: nothing passes GlowInitHook to the estimator.",
    ],
    "pairs": PAIRS,
    "steps": STEPS,
    "lr": LR,
    "hidden": 4,
}


def load(folder: Path) -> list[Any]:
    """Import the official flow and its optimizer, in float64."""
    tf.disable_v2_behavior()
    slim: Any = ModuleType("ops")
    slim.add_arg_scope, slim.arg_scope = tf_slim.add_arg_scope, tf_slim.arg_scope
    tf.contrib = SimpleNamespace(framework=slim)
    tf.multiply = operator.mul  # of a number and a tensor in float64
    parents = ("contrib", "contrib.framework", "contrib.framework.python")
    sys.modules |= {f"tensorflow.{name}": ModuleType(name) for name in parents}
    sys.modules |= {"tensorflow.contrib.framework.python.ops": slim, "tensorflow": tf}
    sys.path.insert(0, str(folder))
    modules = []
    for name in ("flow.glow_ops_1x1", "flow.glow_1x1", "optimization_bert_flow"):
        source = (folder / f"{name.replace('.', '/')}.py").read_text().replace("float32", "float64")
        modules.append(ModuleType(name))
        sys.modules[name] = modules[-1]
        exec(compile(source, name, "exec"), modules[-1].__dict__)
    return modules[1:]


def record(folder: Path) -> dict[str, np.ndarray]:
    """Return pairs, weights, what the official code computes of them, and the weights after its steps.

    Weights are in the order in which the code creates them, as one vector. Matrices are [inputs, outputs].
    """
    flow, optimization = load(folder)
    numbers = np.random.default_rng(0)
    pairs = numbers.normal(1.0, 2.0, (2, PAIRS, WIDTH))
    config = json.loads((folder / "flow" / "config" / f"{CONFIG}.json").read_text())
    config |= {"coupling_width": FACTS["hidden"], "is_training": True}
    glows, losses = [], []
    for side in pairs:
        with tf.variable_scope("bert", reuse=tf.AUTO_REUSE, dtype=tf.float64):
            glows.append(flow.Glow(flow.AttrDict(config)))
            losses.append(glows[-1].body(tf.constant(side), True))
    loss = tf.reduce_mean(losses[0]) + tf.reduce_mean(losses[1])
    weights = tf.trainable_variables("bert/flow")
    outputs = {"z": [glow.z for glow in glows], "losses": losses, "gradient": tf.gradients(loss, weights)}
    bert = tf.get_variable("bert/frozen", [1], tf.float64)
    train = optimization.create_optimizer(tf.zeros_like(tf.reduce_sum(bert)), loss, 5e-5, LR, STEPS, 0, False)
    drawn = [numbers.normal(0.0, 0.1, weight.shape).astype("float32") for weight in weights]
    tensors = {"pairs": pairs, "weights": np.concatenate([np.ravel(values) for values in drawn])}
    return tensors | run(weights, drawn, outputs, train)


def run(weights: Sequence[Any], drawn: Sequence[np.ndarray], outputs: dict[str, Any], train: Any) -> dict[str, Any]:
    """Return the outputs for the drawn weights, and the weights after steps and after the initialization."""
    tensors = {}
    with tf.Session() as session:

        def flat(values: Sequence[Any]) -> np.ndarray:
            return np.concatenate([np.ravel(value) for value in session.run(values)])

        def restart() -> None:
            session.run(tf.global_variables_initializer())
            for weight, values in zip(weights, drawn, strict=True):
                weight.load(values, session)

        restart()
        tensors |= {name: flat(values) for name, values in outputs.items()}
        for _ in range(STEPS):
            session.run(train)
        tensors["trained"] = flat(weights)
        restart()
        session.run([weight.initializer for weight in weights if "/zeros/" in weight.name])  # as before a fit
        session.run(tf.get_collection("glow_init_op")[0])
        return tensors | {"standardized": flat(weights)}


if __name__ == "__main__":
    tensors = record(Path(sys.argv[1]) / "bohanli+BERT-flow")
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, RECORDS / "flow.safetensors")
    (RECORDS / "flow.yaml").write_text(yaml.safe_dump(FACTS, sort_keys=False, width=120))
    print("bits per dimension", tensors["losses"])
