"""The Lightning module: views, losses, curves, clipping, held-out rows, the queue, compilation, and NaN."""

import copy
import itertools
import math
from functools import cache, partial, partialmethod

import pandas
import peft
import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.plugins import MixedPrecision
from scipy.stats import spearmanr
from torch.utils.data import DataLoader

from simcse_pl import datamodule
from simcse_pl.data.collator import ViewCollator
from simcse_pl.datamodule import SentenceDataModule
from simcse_pl.evaluation.evaluators import ScoredPairs, measure
from simcse_pl.loggers import CurvesLogger
from simcse_pl.losses.contrastive import ContrastiveLoss, contrastive_loss
from simcse_pl.losses.loss import Loss
from simcse_pl.methods.momentum_queue import MomentumQueue
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.module import SimCSEModule
from simcse_pl.utils.errors import UserError
from tests.conftest import SENTENCES, adamw, linear, quiet_trainer, ready_data


@cache
def scored_pairs():
    """Return an evaluator of the first 128 pairs of each set of the sample."""
    evaluator = ScoredPairs("sample")
    for files in evaluator.sets.values():
        files[""] = files[""][:128]
    return evaluator


@pytest.fixture
def encoder(make_model):
    return SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", head="mlp_train_only")


def trainer(*callbacks, **options):
    given = {"log_every_n_steps": 1, "max_epochs": 2, "check_val_every_n_epoch": None, **options}
    if given.get("precision") == "16-mixed":  # which Lightning replaces by bf16-mixed on a CPU
        scaler = torch.amp.GradScaler("cpu", init_scale=given.pop("scale", 2.0**10))
        given["plugins"] = MixedPrecision(given.pop("precision"), "cpu", scaler)
    return quiet_trainer(callbacks=list(callbacks), **given)


def view_loader(encoder):
    rows = [(sentence,) for sentence in SENTENCES]
    return DataLoader(rows, batch_size=3, collate_fn=ViewCollator(encoder.tokenizer, 16))


def data(encoder):
    return ready_data(encoder, scored_pairs(), view_loader(encoder))


def spearman(encoder):
    """Return scipy's correlation; rounding may change the ranks of a few pairs in ours."""
    pairs = scored_pairs().sets["validation"][""]
    first, second = (encoder.encode([getattr(pair, side) for pair in pairs]) for side in ("first", "second"))
    return spearmanr(F.cosine_similarity(first.double(), second.double()), [pair.score for pair in pairs]).statistic


@pytest.mark.parametrize(
    ("options", "head", "passes"),
    [
        ({}, "none", 1),
        ({"chunk_size": 3}, "mlp_train_only", 3),
        ({"two": True}, "mlp_train_only", 1),
        ({"shared_dropout_mask": True}, "mlp_train_only", 3),
    ],
)
def test_views_are_embedded_in_one_pass_and_pooled_vectors_are_those_before_the_head(make_model, options, passes, head):
    """A second encoder takes all views but the first, and is not validated."""
    kinds = ("mean", make_model("bert")), ("cls", make_model("bert", num_hidden_layers=2))
    first, second = (SentenceEncoder.from_pretrained(path, pooling, head=head, dropout=0.0) for pooling, path in kinds)
    first.groups.tokens_per_pass = math.inf
    how = {"positive_encoder": second} if "two" in options else options
    module = SimCSEModule(first, ContrastiveLoss(), adamw(), **how)
    batch = ViewCollator(first.tokenizer, 16)([(text, text.upper(), text[::-1]) for text in SENTENCES])
    calls = []
    first.backbone.register_forward_hook(lambda *_: calls.append(1))
    found = module.train().batch_of(batch)
    assert not calls and not found.embedded, "before a loss needs them"
    found.embed()
    assert found.pooled.equal(found.embeddings) == (head == "none") and len(calls) == passes
    for view, encoder in enumerate([first, *[second if "two" in options else first] * 2]):
        inputs = {name: tensor[:, view] for name, tensor in batch.items()}
        torch.testing.assert_close(found.embeddings[:, view], encoder(inputs), atol=1e-6, rtol=0)
        encoder.eval()  # without the head
        torch.testing.assert_close(found.pooled[:, view], encoder(inputs), atol=1e-6, rtol=0)
        encoder.train()
    if "two" in options:
        (logged,) = trainer().validate(module, data(first), verbose=False)
        assert logged["val/spearman"] == pytest.approx(spearman(first), abs=1e-3)


def test_losses_know_the_share_of_the_steps_that_are_done(encoder):
    seen = []

    class Recording(ContrastiveLoss):
        def forward(self, batch):
            seen.append(batch.progress)
            return super().forward(batch)

    trainer(max_epochs=-1, max_steps=4).fit(SimCSEModule(encoder, Recording(), adamw(), linear()), data(encoder))
    assert seen == [1.0, 0.0, 0.25, 0.5, 0.75]  # the first is outside of training


@pytest.mark.parametrize(
    ("precision", "options", "rounding"),
    [
        ("bf16-mixed", {}, 1e-5),
        ("16-mixed", {}, 1e-5),
        ("bf16-mixed", {"dtype": "bfloat16", "adapter": peft.LoraConfig(target_modules=["query"])}, 1e-3),
    ],
)
def test_validation_and_test_have_the_vectors_and_scores_of_encode(make_model, precision, options, rounding):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", head="mlp", **options)
    module, loaded, compared = SimCSEModule(encoder, ContrastiveLoss(), adamw(lr=1e-3)), data(encoder), []

    class Compare(pl.Callback):
        def on_validation_end(self, trainer, pl_module, split="validation", name="val/spearman"):
            expected = encoder.encode(loaded.sentences[split].sentences)
            torch.testing.assert_close(pl_module.vectors(), expected, atol=rounding, rtol=0)
            score = measure({"sts": scored_pairs()}, encoder.encode, split)["spearman"]
            assert trainer.callback_metrics[name].item() == pytest.approx(score, abs=rounding)
            compared.append(split)

        on_test_end = partialmethod(on_validation_end, split="test", name="test/spearman")

    run = trainer(Compare(), max_steps=3, precision=precision)
    run.fit(module, loaded)
    run.test(module, loaded, verbose=False)
    assert compared == ["validation", "test"] and run.precision == precision


def test_fp16_skips_a_step_whose_gradient_overflows_and_halves_the_scale(encoder):
    module, weights, scales = SimCSEModule(encoder, ContrastiveLoss(), adamw()), [], []

    class Record(pl.Callback):
        def on_train_batch_start(self, trainer, *_):
            weights.append(torch.cat([weight.detach().flatten() for weight in module.parameters()]))
            scales.append(trainer.precision_plugin.scaler.get_scale())

    options = {"precision": "16-mixed", "scale": 2.0**24, "gradient_clip_val": 1.0}
    trainer(Record(), max_epochs=-1, max_steps=13, **options).fit(module, view_loader(encoder))
    skipped = [before.equal(after) for before, after in itertools.pairwise(weights)]
    assert skipped == [after == before / 2 for before, after in itertools.pairwise(scales)]
    assert skipped[0] and not skipped[-1]


@pytest.mark.parametrize(
    ("precision", "algorithm"),
    [("32-true", "norm"), ("bf16-mixed", "norm"), ("16-mixed", "norm"), ("32-true", "value")],
)
def test_the_norm_of_the_gradients_before_clipping_is_logged_with_the_learning_rate(
    encoder, tmp_path, precision, algorithm
):
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(lr=1e-3), linear())
    norms, clipped = [], []

    def norm(order=2):
        gradients = [x.grad.double().flatten() for x in module.parameters() if x.grad is not None]
        return [torch.cat(gradients).norm(order).item()] if gradients else []

    class Record(pl.Callback):
        def on_before_optimizer_step(self, trainer, pl_module, optimizer):
            norms.extend(norm())

        def on_before_zero_grad(self, trainer, pl_module, optimizer):
            clipped.extend(norm(2 if algorithm == "norm" else math.inf))

    logger = CurvesLogger(tmp_path, name="", version="")
    options = {"gradient_clip_val": 1e-3, "gradient_clip_algorithm": algorithm}
    options |= {"precision": precision, "logger": logger}
    trainer(Record(), max_steps=3, **options).fit(module, view_loader(encoder))
    assert len(clipped) >= 2 and clipped == pytest.approx([1e-3] * len(clipped), rel=1e-3)
    logged = pandas.read_csv(tmp_path / "metrics.csv")
    assert logged["train/grad_norm"].tolist() == pytest.approx(norms, rel=1e-5)
    assert logged["train/lr"].tolist() == pytest.approx([1e-3 * (1 - step / 3) for step in range(3)])


def test_a_trained_module_can_be_copied(encoder):
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    trainer(max_steps=2).fit(module, view_loader(encoder))
    copied = copy.deepcopy(module)
    assert copied.step is None and module.step is not None
    assert torch.equal(copied.encoder.encode(SENTENCES), encoder.encode(SENTENCES))


class Norm(Loss):
    """The norm of the anchors, times a parameter that `attach` adds."""

    def attach(self, encoder):
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, batch):
        return self.scale * batch.embeddings[:, 0].norm()


def test_the_loss_is_the_objective_plus_the_auxiliary_losses_times_their_weights(encoder):
    terms = {"norm": Norm(0.25), "disabled": Norm(0.0)}
    module = SimCSEModule(encoder, ContrastiveLoss(weight=3.0), adamw(), auxiliary=terms).eval()
    assert list(module.auxiliary) == ["norm"] and not hasattr(terms["disabled"], "scale")
    rows = module.batch_of(next(iter(view_loader(encoder))))
    loss = module.loss(rows)
    norm = 2 * rows.embeddings[:, 0].norm()
    torch.testing.assert_close(loss, 3 * ContrastiveLoss()(*rows.embeddings.unbind(dim=1)) + 0.25 * norm)
    assert rows.curves == {"train/norm": norm}
    loss.backward()
    assert terms["norm"].scale.grad is not None


@pytest.mark.parametrize(
    ("objective", "options", "message"),
    [
        (ContrastiveLoss(), {"auxiliary": {"own": torch.nn.Identity()}}, "auxiliary.own: Identity is no subclass"),
        (ContrastiveLoss(), {"positive_encoder": True, "shared_dropout_mask": True}, "encoders=two does not work"),
        (Norm(), {"queue": MomentumQueue(4)}, "queue: the objective has no negatives"),
    ],
)
def test_parts_that_would_have_no_effect_are_errors_before_training(objective, options, message, encoder):
    with pytest.raises(UserError, match=f"^{message}"):
        SimCSEModule(encoder, objective, adamw(), **options)


def test_training_is_compiled_for_all_shapes_and_keeps_the_loss_and_evaluation_is_not_compiled(make_model, monkeypatch):
    """torch keeps eight graphs, and does not compile further shapes unless a graph is for several."""
    graphs, calls = [], []

    def backend(graph, inputs, **options):
        graphs.append(graph)
        return lambda *given: calls.append(1) or graph(*given)

    def losses_and_gradients(compile):
        options = {"dropout": 0.0, "attention_dropout": 0.0, "num_layers": 1}
        encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", **options)
        module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), compile=compile)
        module.prepare()
        for rows in range(2, 12):
            encoder.encode(["the " * rows] * rows, batch_size=rows)
        assert not calls
        for rows, tokens in itertools.product(range(2, 9), (5, 8, 16)):
            views = ViewCollator(encoder.tokenizer, tokens)([(text,) for text in SENTENCES[:rows]])
            loss = module.loss(module.batch_of(views))
            loss.backward()
            yield loss.detach()
        yield from (p.grad for p in module.parameters() if p.grad is not None)

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    expected = list(losses_and_gradients(False))
    torch.testing.assert_close(list(losses_and_gradients("reduce-overhead")), expected, atol=1e-5, rtol=1e-5)
    assert len(calls) == 21 and len(graphs) <= 2


@pytest.mark.parametrize(
    ("attention", "chunk_size", "why"),
    [(None, 2, "CUDA graphs cannot compute chunks again"), ("unpadded", None, "unpadded batches have no common")],
)
def test_cuda_graphs_of_chunks_and_of_unpadded_batches_are_errors(attention, chunk_size, why, make_model):
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="mean", attn_implementation=attention)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw(), compile="reduce-overhead", chunk_size=chunk_size)
    with pytest.raises(UserError, match=f"^module.compile=reduce-overhead: {why}"):
        module.prepare()


def test_the_queue_follows_the_released_code_of_esimcse(make_model):
    """In a step, the copy of the backbone first moves towards the weights of the forward pass.

    The step's loss has the anchors of earlier steps only. Then its own anchors enter the queue: the copy's vectors,
    without dropout, through the encoder's own head of that step.
    """
    encoder = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp_train_only", dropout=0.5)
    queues, weights = [], []

    class Recorded(ContrastiveLoss):
        def forward(self, batch):
            if batch.queue is not None:  # in training
                queues.append(batch.queue.clone())
                weights.append({name: x.detach().clone() for name, x in encoder.state_dict().items()})
            return super().forward(batch)

    module = SimCSEModule(encoder, Recorded(), adamw(lr=0.05), queue=MomentumQueue(size=5, momentum=0.9))
    trainer(max_epochs=1).fit(module, data(encoder))
    other = SentenceEncoder.from_pretrained(make_model("bert"), pooling="cls", head="mlp_train_only").eval()
    copied = {name: x.clone() for name, x in weights[0].items()}
    expected = []
    for trained, queue, batch in zip(weights, queues, view_loader(encoder), strict=True):
        assert len(queue) == len(expected)
        for row, vector in zip(queue, expected, strict=True):
            torch.testing.assert_close(row, vector, atol=1e-5, rtol=1e-4)
        copied = {name: 0.9 * x + 0.1 * trained[name] for name, x in copied.items()}
        other.load_state_dict(copied)
        with torch.no_grad():
            cls = other.backbone(**{name: x[:, 0] for name, x in batch.items()}).last_hidden_state[:, 0]
            anchors = torch.tanh(cls @ trained["projection.0.weight"].T + trained["projection.0.bias"])
        expected = [*expected, *anchors][-5:]
    assert len(queues) == 3 and (weights[0]["projection.0.weight"] - weights[2]["projection.0.weight"]).norm() > 0.5


class Drawn(Loss):
    """A random number, as the loss of tokens that are masked at random is."""

    embeds = False

    def forward(self, batch):
        return torch.rand(())


def test_the_loss_of_held_out_rows_is_their_mean_without_dropout(encoder, tmp_path):
    """Batches of 3 and 4 rows."""
    rows = [(a, b) for a in SENTENCES[:7] for b in SENTENCES[:2]]
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join("\t".join(row) for row in rows))
    options = {"header": False, "hold_out": 0.5, "batch_size": 3, "max_length": 16}
    held = SentenceDataModule(encoder.tokenizer, path, evaluators={"sts": lambda **files: scored_pairs()}, **options)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    (logged,) = trainer().validate(module, held, verbose=False)
    total = 0
    for places in torch.randperm(7, generator=torch.Generator().manual_seed(held.seed)).split([3, 4]):
        columns = zip(*(rows[held.rows[""].held_out[place]] for place in places), strict=True)
        vectors = (encoder.encode(column, max_length=16) for column in columns)
        total += len(places) * contrastive_loss(*vectors, temperature=0.05)
    assert logged["val/loss"] == pytest.approx(total.item() / 7, rel=1e-4)
    assert logged["val/spearman"] == pytest.approx(spearman(encoder), abs=1e-3)
    drawn = set()
    for seed in range(2):
        torch.manual_seed(seed)
        drawn.add(module.held_out_loss(Drawn(), held.held_out_batches("")).item())
    assert len(drawn) == 1, "all validations mask the same tokens"


@pytest.mark.parametrize("part", ["template", "prompts", "tokenizer", "tokenizer and max_length"])
@pytest.mark.parametrize("run", ["fit", "validate"])
def test_data_without_the_encoders_tokenizer_template_and_prompts_are_an_error(make_model, encoder, part, run):
    options = {"template": {"template": "{sentence} !"}, "prompts": {"prompts": {"query": "query: "}}}
    options["tokenizer and max_length"] = {"max_length": 20}
    kind = "roberta" if part == "tokenizer" else "bert"
    other = SentenceEncoder.from_pretrained(make_model(kind), "mean", **options.get(part, {}))
    for trained, given in ((other, encoder), (encoder, other)):
        own = data(given)
        own.templates = given.templates
        message = f"^the data does not have the encoder's {part.removesuffix('s')}".replace("prompt", "template")
        with pytest.raises(UserError, match=message):
            getattr(trainer(), run)(SimCSEModule(trained, ContrastiveLoss(), adamw()), own)


def test_loaders_train_also_those_of_another_datamodule_and_are_not_validated(encoder):
    class Loaders(pl.LightningDataModule):
        def train_dataloader(self):
            return view_loader(encoder)

    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    trainer(max_epochs=1).fit(module, Loaders())
    assert module.step.number == 3
    own = data(encoder)
    own.setup()
    with pytest.raises(UserError, match="^validation: its evaluators are those of a SentenceDataModule"):
        trainer(num_sanity_val_steps=1).fit(module, view_loader(encoder), own.val_dataloader())


class Detached(ContrastiveLoss):
    def forward(self, batch):
        return super().forward(batch).detach()


def test_an_objective_of_dot_products_says_that_validation_takes_the_cosine(encoder, caplog):
    for similarity in ("cosine", "dot"):
        assert not caplog.messages
        SimCSEModule(encoder, ContrastiveLoss(similarity=similarity), adamw()).prepare()
    assert caplog.messages == ["objective.similarity=dot: validation and search take the cosine"]


def test_what_would_train_no_weight_or_a_rate_without_end_is_an_error(encoder):
    with pytest.raises(UserError, match="^no weight would be trained: "):
        trainer().fit(SimCSEModule(encoder, Detached(), adamw()), view_loader(encoder))
    encoder.requires_grad_(True)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    trainer(max_epochs=-1, max_time={"seconds": 1}).fit(module, view_loader(encoder))  # a constant rate needs no end
    assert module.step.number > 1
    with pytest.raises(UserError, match="^scheduler: it needs the number of steps"):
        trainer(max_epochs=-1).fit(SimCSEModule(encoder, ContrastiveLoss(), adamw(), linear()), view_loader(encoder))


def test_a_validation_needs_all_sentences_and_finite_embeddings(encoder, monkeypatch):
    monkeypatch.setattr(datamodule, "_EVALUATED_AT_ONCE", 64)
    module = SimCSEModule(encoder, ContrastiveLoss(), adamw())
    with pytest.raises(UserError, match="^trainer.limit_val_batches: "):
        trainer(limit_val_batches=1).validate(module, data(encoder))
    torch.nn.init.constant_(encoder.backbone.embeddings.LayerNorm.weight, math.inf)
    with pytest.raises(UserError, match="^step 0: embeddings are no longer finite"):
        trainer().validate(module, data(encoder))


class BadGradient(ContrastiveLoss):
    def forward(self, batch):
        return super().forward(batch) + (batch.embeddings.sum() * 0).sqrt()


def test_a_gradient_that_is_not_finite_ends_the_run(encoder):
    with pytest.raises(UserError, match="^step 1: the loss is .* and its gradient's norm nan, in unknown rows"):
        trainer().fit(SimCSEModule(encoder, BadGradient(), adamw()), view_loader(encoder))
    assert all(weight.isfinite().all() for weight in encoder.parameters()), "the step is not made"
