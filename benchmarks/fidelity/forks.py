"""Methods whose official code is SimCSE's with another loss."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertForMaskedLM

from benchmarks.fidelity.common import PAIRS, RECORDS, TRIPLETS, Record, Repository, official_model, padded, tokenizer
from benchmarks.fidelity.simcse import NAMES

BATCH_NORM = {"mlp.net.": "encoder.projection."}
SINGLES = [[first] for first, _ in PAIRS]
_SEED = 5  # of random numbers that the official loss draws


def tokens(views: int) -> dict[str, Tensor]:
    """Return the ids and the attention mask of views of the sentences; other views than the first lose tokens."""
    first = [tokenizer()(sentence).input_ids for sentence, _ in PAIRS]
    return padded([[[*ids[:1], *ids[1 + view :]] for view in range(views)] for ids in first])


def pairs() -> dict[str, Tensor]:
    """Return the ids and the attention mask of the pairs."""
    return padded([[tokenizer()(sentence).input_ids for sentence in pair] for pair in PAIRS])


def records(folders: Path) -> Iterator[Record]:
    """Yield a record of each method."""
    first = masked_language_modelling, gs_infonce, esimcse, mixcse, simcse_pp
    for method in (*first, diffcse, whitenedcse, pcl, infocse, rankcse, dclr, gcse, promcse):
        yield method(folders)


def recorded(
    record: Record, path: str, inputs: dict[str, Tensor], further: dict[str, object] | None = None,
    prepare: Callable[[nn.Module], None] | None = None, kept: dict[str, Tensor] | None = None,
    repair: Callable[[str], str] = str, **options: object,
) -> Record:  # fmt: skip
    """Run the class BertForCL of a file on inputs and further arguments, and return the record.

    `prepare` changes the model before it runs. `kept` are tensors to record beside the inputs, and `options` further
    options of the official script.
    """
    official = record.repository.load(path, repair)
    given = {"pooler_type": "cls", "temp": 0.05, "hard_negative_weight": 0.0, "do_mlm": False, "mlm_weight": 0.1}
    model = official_model(official.BertForCL, copy=record.copy, model_args=Namespace(**given | options))
    if prepare:
        prepare(model)

    def loss(model: nn.Module) -> Tensor:
        torch.manual_seed(_SEED)
        return model(**inputs, **(further or {}))[0]

    return record.run(model, inputs | (kept or {}), loss)


def with_masked(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return inputs with ids of which some are masked or replaced, and labels: the ids that were chosen, or -100."""
    words, ids = tokenizer(), inputs["input_ids"]
    chosen = (torch.arange(ids.numel()).view_as(ids) % 4 == 2) & ~torch.isin(ids, torch.tensor(words.all_special_ids))
    masked = torch.where(chosen, words.mask_token_id, ids)
    return inputs | {"mlm_input_ids": masked, "mlm_labels": torch.where(chosen, ids, -100)}


def masked_language_modelling(folders: Path) -> Record:
    """SimCSE with masked language modelling as an auxiliary loss (Table D.2).

    The second step depends on whether the decoder is a parameter of its own.
    """
    names = NAMES | {
        "lm_head.transform.": "auxiliary.mlm.head.model.cls.predictions.transform.",
        "lm_head.decoder.": "auxiliary.mlm.head.model.cls.predictions.decoder.",
        "lm_head.bias": "auxiliary.mlm.head.model.cls.predictions.decoder.bias",
    }
    options = ["method=sup_simcse", "auxiliary=mlm"]
    repository = Repository(folders, "princeton-nlp/SimCSE", "49fa580")
    record = Record("sup_simcse_mlm", repository, options, names, TRIPLETS, steps=2)
    inputs = padded([[tokenizer()(sentence).input_ids for sentence in row] for row in TRIPLETS])

    def pretrained(model: nn.Module) -> None:
        head = BertForMaskedLM.from_pretrained(RECORDS / "bert").cls.predictions.state_dict()
        model.lm_head.load_state_dict(head)

    return recorded(record, "simcse/models.py", with_masked(inputs), prepare=pretrained, do_mlm=True)


def gs_infonce(folders: Path) -> Record:
    """GS-InfoNCE (Wu et al. 2022)."""
    repository = Repository(folders, "caskcsg/sentemb", "5eeec55", "gsInfoNCE")
    repaired = "the noise is in float64, as the embeddings are"
    record = Record("gs_infonce", repository, ["method=gs_infonce"], NAMES, PAIRS, repaired, script="run.sh")
    torch.manual_seed(_SEED)
    noise = torch.normal(0, 0.5, size=(192, 8))
    return recorded(
        record, "gsInfoNCE/models.py", pairs(), kept={"noise": noise}, random_size=192, random_std=0.5,
        repair=lambda source: source.replace("z2_random.unsqueeze(0)", "z2_random.double().unsqueeze(0)"),
    )  # fmt: skip


def esimcse(folders: Path) -> Record:
    """ESimCSE (Wu et al. 2022)."""
    repository = Repository(folders, "caskcsg/sentemb", "5eeec55", "ESimCSE")
    record = Record("esimcse", repository, ["method=esimcse"], NAMES, SINGLES, views="recorded", script="run.sh")
    torch.manual_seed(2)
    queue = torch.randn(6, 8)
    return recorded(
        record, "esimcse/models.py", tokens(2), {"pre_z1": queue.double(), "momentum": 0.995}, kept={"queue": queue},
        momentum=0.995,
    )  # fmt: skip


def mixcse(folders: Path) -> Record:
    """MixCSE (Zhang et al. 2022)."""
    repository = Repository(folders, "BDBC-KG-NLP/MixCSE_AAAI2022", "884145e")
    record = Record("mixcse", repository, ["method=mixcse", "objective.share=0.25"], NAMES, PAIRS)
    record.script = "run_unsup_example.sh"
    return recorded(record, "mixcse/models_mix.py", pairs(), lambdas=0.25)  # 0.2 is not exact in float32


def simcse_pp(folders: Path) -> Record:
    """SimCSE++ (Xu et al. 2023)."""
    repository = Repository(folders, "Jiahao004/SimCSE-plus-plus", "899e49b")
    record = Record("simcse_pp", repository, ["method=simcse_pp"], NAMES, PAIRS, script="run_re_vicreg.sh")
    return recorded(record, "simcse/models_re_vicreg.py", pairs(), pos_ratio=1, sw_temp=5.0, sw_weight=0.1)


def diffcse(folders: Path) -> Record:
    """DiffCSE (Chuang et al. 2022)."""
    term = "auxiliary.replaced_token_detection."
    names = BATCH_NORM | {"discriminator.": f"{term}discriminator.", "electra_head.": f"{term}classifier."}
    generator = RECORDS / "bert"
    record = Record(
        "diffcse", Repository(folders, "voidism/DiffCSE", "f724b2c"),
        ["method=diffcse", f"{term}generator={{bert}}", f"{term}weight=0.5"], names, PAIRS,
        "the discriminator's first state is set by a hook: the released copy of transformers 4.2.1 does it by "
        "cls_input", copy="discriminator", script="run_diffcse.sh",
    )  # fmt: skip

    def prepare(model: nn.Module) -> None:
        model.electra_head = nn.Linear(8, 2)
        forward = model.discriminator.forward

        def with_sentence(*inputs: Tensor, cls_input: Tensor, **further: Tensor) -> object:
            hook = model.discriminator.embeddings.register_forward_hook(
                lambda module, given, states: torch.cat([cls_input.unsqueeze(1), states[:, 1:]], dim=1)
            )
            output = forward(*inputs, **further)
            hook.remove()
            return output

        model.discriminator.forward = with_sentence
        model.generator.load_state_dict(BertForMaskedLM.from_pretrained(generator).state_dict())
        model.generator.requires_grad_(False)

    return recorded(
        record, "diffcse/models.py", with_masked(pairs()), prepare=prepare,
        repair=lambda source: source.replace("cls_token=101", f"cls_token={tokenizer().cls_token_id}"),
        generator_name=str(generator), batchnorm=True, before_mlp=False, lambda_weight=0.5, mlp_only_train=True,
    )  # fmt: skip


def whitenedcse(folders: Path) -> Record:
    """WhitenedCSE (Zhuo et al. 2023)."""
    repaired = (
        "views are whitened apart (the released rows mix them), in float64 with a gradient, by eigh in place of symeig"
    )
    options = ["method=whitenedcse", "objective.groups=4"]
    repository = Repository(folders, "SupstarZh/WhitenedCSE", "65fe70a")
    record = Record("whitenedcse", repository, options, NAMES, SINGLES, repaired, views="recorded")
    record.script = "run_unsup_example.sh"

    def repair(source: str) -> str:
        whitening = (repository.place / "whitenedcse" / "shuffled_group_whitening.py").read_text()
        for released, changed in (
            ("covs = torch.tensor(covs, dtype=torch.float32, requires_grad=True)", "pass"),
            ("torch.symeig(covs.to(linalg_device), eigenvectors=True, upper=True)", "torch.linalg.eigh(covs)"),
        ):
            assert released in whitening
            whitening = whitening.replace(released, changed)
        lines = [line for line in source.splitlines() if not line.startswith("from whitenedcse.")]
        source = "\n".join(lines).replace("num_groups=128, config.num_pos", "num_groups=4, num_pos=3")
        released = "    pooler_output = cls.mlp(pooler_output)\n"
        by_view = "pooler_output.view(batch_size, num_sent, -1).transpose(0, 1).flatten(0, 1)"
        back = "cls.mlp(" + by_view + ").view(num_sent, batch_size, -1).transpose(0, 1)"
        assert source.count(released) == 2, source.count(released)
        return whitening + "\n" + source.replace(released, f"    pooler_output = {back}\n", 1)

    torch.manual_seed(_SEED)
    orders = torch.stack([torch.randperm(8) for _ in range(3)])
    return recorded(record, "whitenedcse/models.py", tokens(3), kept={"orders": orders}, repair=repair)


def pcl(folders: Path) -> Record:
    """PCL (Wu et al. 2022)."""
    peer = "auxiliary.peer_network."
    names = NAMES | {"peer_model.": f"{peer}peer.backbone.", "peer_model.pooler.dense.": f"{peer}pooler.0."}
    record = Record(
        "pcl", Repository(folders, "qiyuw/PeerCL", "5e40ea5"), ["method=pcl"], names, SINGLES,
        "the peer gets the attention mask, without which its vectors depend on padding", views="recorded",
        copy="peer_model", script="run_unsup_pcl.sh",
    )  # fmt: skip
    return recorded(
        record, "pcl/models.py", tokens(10), repair=lambda source: source.replace(
            "cls.peer_model(peer_input_ids)", "cls.peer_model(peer_input_ids, attention_mask=peer_attention_mask)"
        ),
        peer_coop=True, posi_cst=True, fix_peer_model=False, model_name_or_path=RECORDS / "bert",
    )  # fmt: skip


def infocse(folders: Path) -> Record:
    """InfoCSE (Wu et al. 2022)."""
    term = "auxiliary.sentence_mlm."
    names = {"c_head.": f"{term}head_layers.encoder.layer.", "lm_head.": f"{term}head.model.cls.predictions."}
    names["lm_head.bias"] = f"{names['lm_head.']}decoder.bias"
    record = Record(
        "infocse", Repository(folders, "caskcsg/sentemb", "5eeec55", "InfoCSE"),
        ["method=infocse", f"{term}frozen_layers=1", f"{term}layers=1", f"{term}weight=0.5"], BATCH_NORM | names, PAIRS,
        script="Infocse-bert-base.sh",
    )  # fmt: skip

    def prepare(model: nn.Module) -> None:
        pretrained = BertForMaskedLM.from_pretrained(RECORDS / "bert")
        model.mlm.load_state_dict(pretrained.state_dict(), strict=False)
        model.lm_head.load_state_dict(pretrained.cls.predictions.state_dict())

    return recorded(
        record, "infocse/models_cls_mlm.py", with_masked(pairs()), prepare=prepare, do_mlm=True,
        skip_from=1, n_head_layers=1, mlm_eval=True, batchnorm=True, mlm_weight=0.5,
    )  # fmt: skip


def rankcse(folders: Path) -> Record:
    """RankCSE (Liu et al. 2023), by a community's code."""
    repaired = (
        "the Jensen-Shannon divergence has the logarithm of the mean (the released one clamps it to 1e-7), and ListMLE "
        "adds no 1e-7"
    )
    teachers = "auxiliary.ranking_distillation.teachers"
    record = Record(
        "rankcse", Repository(folders, "perceptiveshawty/RankCSE", "17c5226"),
        ["method=rankcse", f"{teachers}=[{{bert}}]"], NAMES, PAIRS,
        repaired, script="run_rankcse.sh",
    )  # fmt: skip
    inputs = pairs()
    teacher = BertForMaskedLM.from_pretrained(RECORDS / "bert").bert.double().eval()
    with torch.no_grad():
        flat = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        vectors = teacher(**flat).last_hidden_state[:, 0].view(len(PAIRS), 2, -1)
    scores = nn.CosineSimilarity(dim=-1)(vectors[:, :1], vectors[:, 1]) / 0.05

    return recorded(
        record, "rankcse/models.py", inputs, {"teacher_top1_sim_pred": scores}, repair=lambda source: source.replace(
            ".log().clamp(min=self.eps)", ".log()"
        ).replace("torch.log(cumsums + self.eps)", "torch.log(cumsums)"),
        distillation_loss="listmle", tau2=0.05, gamma_=1.0, beta_=1.0,
    )  # fmt: skip


def dclr(folders: Path) -> Record:
    """DCLR (Zhou et al. 2022)."""
    record = Record(
        "dclr", Repository(folders, "RUCAIBox/DCLR", "e2c3430"),
        ["method=dclr", "objective.threshold=0.83", "objective.guide={guide}"], NAMES, PAIRS,
        "the encoders are BERT with its attention mask, in place of a copy of its code without; the noise is in "
        "float64", copy="fix_bert", script="run.sh",
    )  # fmt: skip
    encoders = """
BertModelDenoised = BertModel

def cl_forward_denoised(cls, encoder, is_fix, noise, input_ids, attention_mask, *further):
    with torch.set_grad_enabled(not is_fix):
        outputs = encoder(input_ids.flatten(0, 1), attention_mask=attention_mask.flatten(0, 1), return_dict=True)
        pooled = outputs.last_hidden_state[:, 0].view(*input_ids.shape[:2], -1)
    return pooled if is_fix else cls.mlp(pooled), outputs
"""
    torch.manual_seed(_SEED)
    noise = torch.randn([len(PAIRS), 8])

    def repair(source: str) -> str:
        double = source.replace("hidden_size], device=z2.device)", "hidden_size], device=z2.device).double()")
        assert double != source
        return double + encoders

    return recorded(
        record, "simcse/models.py", pairs(), kept={"noise": noise}, repair=repair, phi=0.83, noise_times=1, pgd=4,
        is_base=True, c_model_name_or_path=RECORDS / "bert",
    )  # fmt: skip


def gcse(folders: Path) -> Record:
    """GCSE (Lai et al. 2025)."""
    repository = Repository(folders, "aleversn/GCSE", "99e2e18")
    options = ["method=gcse", "objective.guide={guide}", "objective.sigma=5.0"]
    names = NAMES | {"model.": "encoder.backbone."}
    record = Record("gcse", repository, options, names, TRIPLETS, "the decay is in float64, as the embeddings are")

    def repair(source: str) -> str:
        double = source.replace("weights = torch.tensor(", "weights = torch.DoubleTensor(")
        return double.replace("    load_from_pretrained(self, from_pretrained)\n", "")

    official = repository.load("main/models/gcse.py", repair)
    torch.manual_seed(1)
    model = official.GCSE(RECORDS / "bert", "cls", alpha=5.0)
    for weight in model.mlp.parameters():
        nn.init.normal_(weight, std=0.4)
    inputs = padded([[tokenizer()(sentence).input_ids for sentence in row] for row in TRIPLETS])
    guide = official.AutoModel.from_pretrained(RECORDS / "bert").double().eval()
    with torch.no_grad():
        flat = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        vectors = guide(**flat).last_hidden_state[:, 0].view(len(TRIPLETS), 3, -1)
    cosines = [nn.CosineSimilarity(dim=-1)(vectors[:, None, 0], vectors[None, :, view]) for view in (1, 2)]
    taught = torch.cat(cosines, dim=1) / 0.05
    return record.run(model, inputs, lambda model: model(**inputs, base_cos_sim=taught).loss)


def promcse(folders: Path) -> Record:
    """PromCSE's loss of triplets (Jiang, Zhang and Wang 2022), on a model without prefixes."""
    options = ["method=sup_simcse", "auxiliary=energy_hinge"]
    repaired = "there are no prefixes, and BERT is trained"
    record = Record("promcse", Repository(folders, "YJiangcm/PromCSE", "4b31938"), options, NAMES, TRIPLETS, repaired)

    def prepare(model: nn.Module) -> None:
        del model.prefix_encoder
        model.get_prompt = lambda batch_size: None
        model.requires_grad_(True)

    settings = {"pre_seq_len": 0, "prefix_projection": False, "do_eh_loss": True, "eh_loss_margin": 0.2}
    inputs = padded([[tokenizer()(sentence).input_ids for sentence in row] for row in TRIPLETS])
    return recorded(record, "promcse/models.py", inputs, prepare=prepare, **settings, eh_loss_weight=10.0)
