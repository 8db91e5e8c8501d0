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
FACTS = {
    "repository": "bohanli/BERT-flow",
    "commit": "7fa8f6d",
    "versions": {name: version(name) for name in ("tensorflow-cpu", "tf_slim", "numpy")},
    "repaired": "TensorFlow 1 is tensorflow.compat.v1, and tf.contrib is tf_slim. In float64. 4 hidden units, not 32.",
    "standardize": "Part of the code, but not of its fits: nothing passes GlowInitHook to the estimator.",
    "pairs": PAIRS,
    "steps": STEPS,
    "lr": LR,
    "options": {"levels": 3, "depth": 3, "hidden": 4},
}


def load(folder: Path, path: str) -> Any:
    """Import an official file, in float64."""
    name = path.removesuffix(".py").replace("/", ".")
    module = sys.modules[name] = ModuleType(name)
    exec(compile((folder / path).read_text().replace("float32", "float64"), path, "exec"), module.__dict__)
    return module


def record(folder: Path) -> dict[str, np.ndarray]:
    """Return pairs, weights, what the official code computes of them, and the weights after its steps.

    Weights are in the order in which the code creates them, as one vector. Matrices are [inputs, outputs].
    """
    tf.disable_v2_behavior()
    slim: Any = ModuleType("ops")
    slim.add_arg_scope, slim.arg_scope = tf_slim.add_arg_scope, tf_slim.arg_scope
    tf.contrib = SimpleNamespace(framework=slim)
    tf.multiply = operator.mul  # of a number and a tensor in float64
    parents = ("contrib", "contrib.framework", "contrib.framework.python")
    sys.modules |= {f"tensorflow.{name}": ModuleType(name) for name in parents}
    sys.modules |= {"tensorflow.contrib.framework.python.ops": slim, "tensorflow": tf}
    sys.path.insert(0, str(folder))
    load(folder, "flow/glow_ops_1x1.py")
    official = load(folder, "flow/glow_1x1.py")
    create_optimizer = load(folder, "optimization_bert_flow.py").create_optimizer

    numbers = np.random.default_rng(0)
    pairs = numbers.normal(1.0, 2.0, (2, PAIRS, WIDTH))
    config = json.loads((folder / "flow" / "config" / f"{CONFIG}.json").read_text())
    config |= {"coupling_width": 4, "is_training": True}
    towers = []
    for side in pairs:
        with tf.variable_scope("bert", reuse=tf.AUTO_REUSE, dtype=tf.float64):
            tower = official.Glow(official.AttrDict(config))
            towers.append((tower.body(tf.constant(side), True), tower))
    losses = [loss for loss, _ in towers]
    loss = tf.reduce_mean(losses[0]) + tf.reduce_mean(losses[1])
    z = tf.concat([tf.squeeze(tower.z, [1, 2]) for _, tower in towers], 0)
    weights = tf.trainable_variables("bert/flow")
    gradients = tf.gradients(loss, weights)
    bert = tf.get_variable("bert/frozen", [1], tf.float64)
    drawn = [numbers.normal(0.0, 0.1, weight.shape).astype("float32") for weight in weights]
    train = create_optimizer(tf.zeros_like(tf.reduce_sum(bert)), loss, 5e-5, LR, STEPS, 0, False)

    with tf.Session() as session:

        def flat(tensors: Sequence[Any]) -> np.ndarray:
            return np.concatenate([np.ravel(value) for value in session.run(tensors)])

        def restart() -> None:
            session.run(tf.global_variables_initializer())
            for weight, value in zip(weights, drawn, strict=True):
                weight.load(value, session)

        restart()
        tensors = {"pairs": pairs, "weights": flat(weights).astype("float32"), "gradient": flat(gradients)}
        tensors |= {"z": session.run(z), "losses": session.run(tf.concat(losses, 0))}
        for _ in range(STEPS):
            session.run(train)
        tensors["trained"] = flat(weights)
        restart()
        session.run(tf.get_collection("glow_init_op")[0])
        return tensors | {"standardized": flat(weights)}


if __name__ == "__main__":
    tensors = record(Path(sys.argv[1]) / "bohanli+BERT-flow")
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, RECORDS / "flow.safetensors")
    (RECORDS / "flow.yaml").write_text(yaml.safe_dump(FACTS, sort_keys=False, width=120))
    print("bits per dimension", tensors["losses"])
