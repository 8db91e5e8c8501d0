"""The losses as their papers write them: loops over rows and views, of which autograd gives the gradients.

A formula takes what a loss takes: the loss for its options, the encoder, and a batch with given embeddings.
"""

import itertools
import math

import torch

from simcse_pl.utils.types import Role

ANCHOR, POSITIVE, NEGATIVE, OTHER = Role


def similarity(a, b, kind="cosine"):
    dot = (a * b).sum()
    return dot if kind == "dot" else dot / (a.square().sum() * b.square().sum()).sqrt()


def mean(values):
    return sum(values) / len(values)


def log_sum_exp(scores):
    return torch.stack(list(scores)).logsumexp(dim=0)


def softmax(scores):
    return torch.stack(list(scores)).softmax(dim=0)


def divergence(p, q):
    return sum(a * (a.log() - b.log()) for a, b in zip(p, q, strict=True))


def embedded_by(network, batch):
    """Return the vectors of a network that embeds tokens, [rows, views, dim]."""
    inputs = {name: batch.inputs[name] for name in batch.encoder.tokenizer.model_input_names}
    views = range(len(batch.roles))
    return torch.stack([network({name: x[:, view] for name, x in inputs.items()}) for view in views], dim=1)


def contrastive(loss, encoder, batch, own_score=None):
    """Equations 1, 4, 5 and 8 of SimCSE, the queue of ESimCSE, and the options of ContrastiveLoss."""
    x, roles, temperature, kind = batch.embeddings, batch.roles, loss.temperature, loss.similarity
    sentences = batch.inputs["input_ids"].tolist() if loss.mask_duplicates else None
    anchor, positives = roles.index(ANCHOR), [view for view, role in enumerate(roles) if role is POSITIVE]
    compared = [view for view, role in enumerate(roles) if role in (POSITIVE, NEGATIVE)]
    queue = () if batch.queue is None else batch.queue
    copies = torch.zeros(x.shape[:2]) if batch.copies is None else batch.copies

    def repeats(i, j, view):
        views = [view] if roles[view] is NEGATIVE else [anchor, *positives]
        return any(sentences[j][a] == sentences[i][b] for a in views for b in (anchor, *positives))

    def negatives(i, query, positive, views):
        own = similarity(x[i, query], x[i, positive], kind)
        margin = loss.false_negative_margin
        left_out = [view for view in views if roles[view] is not NEGATIVE] if loss.mask_positives else [query, positive]
        for j, view in itertools.product(range(len(x)), views):
            score = similarity(x[i, query], x[j, view], kind)
            nearer = margin is not None and score > own + margin
            repeated = copies[j, view] or (sentences and repeats(i, j, view))
            weight = loss.hard_negative_weight if i == j else 1
            if (i == j and view in left_out) or repeated or nearer or not weight:
                continue
            yield score / temperature + math.log(weight)
        for key in queue:
            score = similarity(x[i, query], key, kind)
            if margin is None or score <= own + margin:
                yield score / temperature

    losses = [[] for _ in x]  # of each row
    same_role = ([anchor], positives) if loss.same_role else ([], [])
    pairs = [(anchor, view, compared + same_role[0]) for view in positives]
    pairs += [(view, anchor, [anchor, *same_role[1]]) for view in positives] if loss.symmetric else []
    for (query, view, views), i in itertools.product(pairs, range(len(x))):
        if copies[i, query] or copies[i, view]:
            continue
        own = (own_score or similarity)(x[i, query], x[i, view], *([] if own_score else [kind])) / temperature
        terms = list(negatives(i, query, view, views))
        if loss.symmetric == "joint":
            if view == anchor:
                continue
            terms += [*negatives(i, view, anchor, [anchor, *same_role[1]]), own]
        if loss.hardness:
            mean_power = log_sum_exp([loss.hardness * term for term in terms]) - math.log(len(terms))
            terms = [term + loss.hardness * term - mean_power for term in terms]
        losses[i].append(log_sum_exp([*terms, own]) - own)
    return mean([mean(of_row) for of_row in losses])


def inner_layer(loss, encoder, batch):
    layer = int(torch.randint(1, encoder.backbone.config.num_hidden_layers, (1,)))

    def network(inputs):
        return encoder.project(encoder.backbone(**inputs, output_hidden_states=True).hidden_states[layer][:, 0])

    inner, t = embedded_by(network, batch), loss.temperature
    pairs = zip(batch.embeddings.detach().flatten(0, 1), inner.flatten(0, 1), strict=True)
    divergences = [divergence(softmax(last / t), softmax(cut / t)) for last, cut in pairs]
    objective = contrastive(loss.objective, encoder, batch.replaced(embeddings=inner))
    return objective + loss.kl_weight * t * mean(divergences)


def distillation(loss, encoder, batch):
    taught = embedded_by(loss.teacher.network, batch)
    if loss.teacher.anchors_only:
        taught = taught[:, :1].expand_as(taught)
    pairs = list(zip(batch.embeddings.flatten(0, 1), taught.flatten(0, 1), strict=True))
    if loss.loss == "cosine":
        return mean([1 - similarity(student, teacher) for student, teacher in pairs])
    if loss.normalize:
        pairs = [(student / student.norm(), teacher / teacher.norm()) for student, teacher in pairs]
    return mean([(student - teacher).square().mean() for student, teacher in pairs])


def margin_mse(loss, encoder, batch):
    """The squared error of Hofstätter et al. (2020), for rows of an anchor, a positive and negatives."""
    errors = []
    for i, pair in enumerate(zip(batch.embeddings, embedded_by(loss.teacher.network, batch), strict=True)):
        negatives = [view for view in range(2, len(batch.roles)) if batch.copies is None or not batch.copies[i, view]]
        margins = ([similarity(x[0], x[1]) - similarity(x[0], x[view]) for x in pair] for view in negatives)
        errors.append(mean([(student - teacher).square() for student, teacher in margins]))
    return mean(errors)


def listwise(loss, encoder, batch):
    """The divergence of Ren et al. (2021) over the own candidates with their scores, or over those of the batch."""
    views = [view for view, role in enumerate(batch.roles) if role in (POSITIVE, NEGATIVE)]
    teacher = batch.labels is None and embedded_by(loss.teacher.network, batch)
    divergences = []
    for i, row in enumerate(batch.embeddings):
        rows = range(len(batch.embeddings)) if batch.labels is None else [i]
        pool = [place for place in itertools.product(rows, views) if batch.copies is None or not batch.copies[place]]
        scores = [similarity(row[0], batch.embeddings[place], loss.similarity) for place in pool]
        if batch.labels is None:
            taught = [similarity(teacher[i, 0], teacher[place]) for place in pool]
        else:
            taught = batch.labels[i].double()
        of_teacher = softmax([score / loss.teacher_temperature for score in taught])
        divergences.append(divergence(of_teacher, softmax([score / loss.temperature for score in scores])))
    return mean(divergences)


def cosine_mse(loss, encoder, batch):
    pairs = zip(batch.embeddings, batch.labels, strict=True)
    return mean([(similarity(*pair) - score / loss.max_score).square() for pair, score in pairs])


def softmax_of_pairs(loss, encoder, batch):
    """The classifier of Sentence-BERT."""
    losses = []
    for (u, v), label in zip(batch.embeddings, batch.labels, strict=True):
        scores = [(row * torch.cat([u, v, (u - v).abs()])).sum() for row in loss.classifier.weight]
        losses.append(log_sum_exp(scores) - scores[label])
    return mean(losses)


def angular_margin(loss, encoder, batch):
    def with_margin(a, b):
        return (similarity(a, b).acos() + math.radians(loss.margin)).cos()

    return contrastive(loss, encoder, batch, own_score=with_margin)


def triplet_margin(loss, encoder, batch):
    terms = []
    for row in batch.embeddings:
        cosines = [similarity(row[batch.roles.index(ANCHOR)], row[view]) for view in batch.views(OTHER)]
        terms += [(after - before + loss.margin).relu() for before, after in itertools.pairwise(cosines)]
    return mean(terms)


def energy_hinge(loss, encoder, batch):
    """The margin of each anchor's positive over its hardest negative in the batch."""
    x, terms = batch.embeddings, []
    for i, view in itertools.product(range(len(x)), batch.views(POSITIVE)):
        keys = itertools.product(range(len(x)), batch.views(POSITIVE, NEGATIVE))
        hardest = max(similarity(x[i, 0], x[key]) for key in keys if key != (i, view))
        terms.append((loss.margin + hardest - similarity(x[i, 0], x[i, view])).relu())
    return mean(terms)


def list_net(loss, encoder, batch):
    x, losses = batch.embeddings, []
    taught = [embedded_by(teacher.network, batch) for teacher in loss.teachers]
    for i in range(len(x)):
        scores = [similarity(x[i, 0], row[1]) / loss.temperature for row in x]
        of_teachers = [
            sum(share * similarity(y[i, 0], y[j, 1]) for share, y in zip(loss.shares, taught, strict=True))
            / loss.teacher_temperature
            for j in range(len(x))
        ]
        others = [j for j in range(len(x)) if j != i]
        p, q = (softmax([values[j] for j in others]) for values in (scores, of_teachers))
        losses.append(-sum(b * a.log() for a, b in zip(p, q, strict=True)))
    return mean(losses)
