"""Adapters of PEFT on a backbone, such as LoRA (Hu et al. 2022): add, load, merge.

In plain terms: the backbone's own weights are frozen, and a few new weights inside its layers are trained. A folder
with an adapter has these few weights only, and names the base model that they belong to.
"""

from pathlib import Path
from typing import Any

from simcse_pl.utils.errors import UserError, reraise_as
from simcse_pl.utils.private import forget_adapter
from simcse_pl.utils.tensors import hash_tensors
from simcse_pl.utils.types import Backbone

_NOT_SAVED = ("ADALORA", "RANDLORA")  # kinds of PEFT that transformers does not load as they were saved
HASHED = 1000  # values of each weight of a base model: another model differs in most weights
_NAME = "default"  # PEFT's name for a single adapter, which is a part of the names of its parameters


def add_adapter(backbone: Backbone, config: Any) -> None:
    """Add a new adapter, and freeze all other weights. The new weights are float32, also beside a base in bfloat16.

    `config` is of PEFT, for an adapter inside layers, such as peft.LoraConfig. UserError has PEFT's message.
    """
    with reraise_as("adapter"):
        from peft.tuners.tuners_utils import cast_adapter_dtype

        initial = str(getattr(config, "init_lora_weights", ""))
        if config.peft_type in _NOT_SAVED or initial.startswith("pissa_niter"):
            what = initial if initial.startswith("pissa_niter") else type(config).__name__
            raise UserError(f"adapter: {what} is loaded with other weights than it was saved with: choose plain LoRA")
        backbone.add_adapter(config)
        if (folder := Path(str(backbone.name_or_path))).is_dir():
            config.base_model_name_or_path = str(folder.absolute())  # the adapter may be saved anywhere
        cast_adapter_dtype(backbone, _NAME)


def load_adapter(backbone: Backbone, source: str) -> None:
    """Load a saved adapter into its base model, or raise UserError if it does not fit. It can be trained further."""
    with reraise_as(f"{source}: cannot load its adapter"):
        from peft import PeftConfig
        from peft.utils import load_peft_weights, set_peft_model_state_dict

        config, weights = PeftConfig.from_pretrained(source), load_peft_weights(source, device="cpu")
        # If the adapter was trained on a model with a head, only its part below the head is needed.
        inner = f"{backbone.base_model_prefix}."
        if isinstance(targets := getattr(config, "target_modules", None), set):
            config.target_modules = {name.removeprefix(inner) for name in targets}
        add_adapter(backbone, config)
        weights = {name.removeprefix("base_model.model."): weight for name, weight in weights.items()}
        if any(name.startswith(inner) for name in weights):
            weights = {name.removeprefix(inner): x for name, x in weights.items() if name.startswith(inner)}
        # The backbone has no pooler (see load_backbone).
        weights = {name: weight for name, weight in weights.items() if not name.startswith("pooler.")}
        info: Any = set_peft_model_state_dict(backbone, weights, _NAME)
    missing = adapter_parameters(backbone).intersection(info.missing_keys)
    if unfit := sorted(missing.union(info.unexpected_keys)):
        raise UserError(f"{source}: its adapter does not fit the base model {backbone.name_or_path}: {unfit[0]}")


def content_of_base(backbone: Backbone) -> str | None:
    """Return a hash of an adapter's base model, equal in float32 and bfloat16; None if it is quantized or sharded."""
    adapter_names = adapter_parameters(backbone)
    weights = {name: weight.detach() for name, weight in backbone.named_parameters() if name not in adapter_names}
    is_sharded = any(weight.is_meta or hasattr(weight, "full_tensor") for weight in weights.values())
    if getattr(backbone, "is_quantized", False) or is_sharded:
        return None
    return hash_tensors({name: weight.flatten()[:HASHED].bfloat16() for name, weight in weights.items()})


def adapter_parameters(backbone: Backbone) -> set[str]:
    """Return the names of the parameters of a backbone's adapter, and of the biases that are trained with it."""
    bias = getattr(backbone.peft_config[_NAME], "bias", "none")  # else all, or a kind of adapter: lora_only
    ends = {"none": (), "all": (".bias",)}.get(bias, (".base_layer.bias",))
    return {name for name, _ in backbone.named_parameters() if _NAME in name.split(".") or name.endswith(ends)}


def without_name(parameter: str) -> str:
    """Return the name of a parameter of an adapter as in the files of PEFT, which lack the name of the adapter."""
    return ".".join(part for part in parameter.split(".") if part not in (_NAME, "modules_to_save"))


def merge_adapter(backbone: Backbone) -> None:
    """Add an adapter's weights to those of the base model, and remove it. A base in bfloat16 becomes float32.

    Raise UserError if the base model is quantized, or the kind of adapter cannot be merged.
    """
    with reraise_as("the adapter cannot be merged"):
        from peft.tuners.tuners_utils import BaseTunerLayer
        from peft.utils import AuxiliaryTrainingWrapper

        backbone.float()  # a quantized model cannot become float32
        for name, module in list(backbone.named_modules()):
            if isinstance(module, AuxiliaryTrainingWrapper):  # of modules_to_save and trainable_token_indices
                backbone.set_submodule(name, module.unload_and_optionally_merge_module(True, True, None))
            elif isinstance(module, BaseTunerLayer) and not name.endswith(".token_adapter"):
                module.merge(safe_merge=True)
                backbone.set_submodule(name, module.get_base_layer())
    forget_adapter(backbone)
    backbone.requires_grad_(True)
