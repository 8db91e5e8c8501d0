"""The losses as their papers write them: loops over rows and views, of which autograd gives the gradients.

A formula takes what a loss takes: the loss for its options, the encoder, and a batch with given embeddings.
"""

import itertools
import math

import torch

from simcse_pl.losses.mlm import NOT_CHOSEN
from simcse_pl.models.roles import Role

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


def infonce(anchors, positives, temperature):
    scores = [[similarity(anchor, positive) / temperature for positive in positives] for anchor in anchors]
    return mean([log_sum_exp(row) - row[i] for i, row in enumerate(scores)])


def inputs_of(encoder, batch, view):
    return {name: batch.inputs[name][:, view] for name in encoder.tokenizer.model_input_names}


def embedded_by(network, batch):
    """Return the vectors of a network that embeds tokens, [rows, views, dim]."""
    return torch.stack([network(inputs_of(batch.encoder, batch, view)) for view in range(len(batch.roles))], dim=1)


def contrastive(loss, encoder, batch, own_score=None, further=lambda i: ()):
    """Equations 1, 4, 5 and 8 of SimCSE, the queue of ESimCSE, and the options of ContrastiveLoss."""
    x, roles, temperature, kind = batch.embeddings, batch.roles, loss.temperature, loss.similarity
    sentences = batch.inputs["input_ids"].tolist() if loss.mask_duplicates else None
    anchor, positives = roles.index(ANCHOR), [view for view, role in enumerate(roles) if role is POSITIVE]
    compared = [view for view, role in enumerate(roles) if role in (POSITIVE, NEGATIVE)]
    queue = () if batch.queue is None else batch.queue

    def repeats(i, j, view):
        views = [view] if roles[view] is NEGATIVE else [anchor, *positives]
        return any(sentences[j][a] == sentences[i][b] for a in views for b in (anchor, *positives))

    def negatives(i, query, views):
        for j, view in itertools.product(range(len(x)), views):
            if (i == j and roles[view] is not NEGATIVE) or (sentences and repeats(i, j, view)):
                continue
            weight = loss.hard_negative_weight if i == j else 1
            yield similarity(x[i, query], x[j, view], kind) / temperature + math.log(weight)
        for key in queue:
            yield similarity(x[i, query], key, kind) / temperature
        yield from further(i)

    losses = []
    same_role = ([anchor], positives) if loss.same_role else ([], [])
    pairs = [(anchor, view, compared + same_role[0]) for view in positives]
    pairs += [(view, anchor, [anchor, *same_role[1]]) for view in positives] if loss.symmetric else []
    for (query, view, views), i in itertools.product(pairs, range(len(x))):
        own = (own_score or similarity)(x[i, query], x[i, view], *([] if own_score else [kind])) / temperature
        terms = list(negatives(i, query, views))
        if loss.hardness:
            mean_power = log_sum_exp([loss.hardness * term for term in terms]) - math.log(len(terms))
            terms = [term + loss.hardness * term - mean_power for term in terms]
        losses.append(log_sum_exp([*terms, own]) - own)
    return mean(losses)


def gist(loss, encoder, batch):
    """GISTEmbed's mask, of one positive."""
    x, guided, roles = batch.embeddings, loss.guide.embed(batch), batch.roles
    anchor, positive = roles.index(ANCHOR), roles.index(POSITIVE)
    compared = [view for view, role in enumerate(roles) if role in (POSITIVE, NEGATIVE)] + [anchor] * loss.same_role
    losses = []
    for i in range(len(x)):
        limit = similarity(guided[i, anchor], guided[i, positive])
        limit = limit - loss.margin * (abs(limit) if loss.relative_margin else 1)
        own = similarity(x[i, anchor], x[i, positive]) / loss.temperature
        kept = [own]
        for j, view in itertools.product(range(len(x)), compared):
            if (i != j or roles[view] is NEGATIVE) and similarity(guided[i, anchor], guided[j, view]) <= limit:
                kept.append(similarity(x[i, anchor], x[j, view]) / loss.temperature)
        losses.append(log_sum_exp(kept) - own)
    return mean(losses)


def of_data_set(loss, encoder, batch):
    return loss.losses[0].weight * contrastive(loss.losses[0], encoder, batch)


def matryoshka(loss, encoder, batch):
    """Equation 1 of Kusupati et al. (2022)."""
    return sum(
        weight * contrastive(loss.objective, encoder, batch.replaced(embeddings=batch.embeddings[..., :dim]))
        for dim, weight in loss.weights.items()
    )


def inner_layer(loss, encoder, batch):
    layer = int(torch.randint(1, encoder.backbone.config.num_hidden_layers, (1,)))

    def network(inputs):
        return encoder.project(encoder.backbone(**inputs, output_hidden_states=True).hidden_states[layer][:, 0])

    inner, t = embedded_by(network, batch), loss.temperature
    pairs = zip(batch.embeddings.detach().flatten(0, 1), inner.flatten(0, 1), strict=True)
    divergences = [divergence(softmax(last / t), softmax(cut / t)) for last, cut in pairs]
    return contrastive(loss.objective, encoder, batch.replaced(embeddings=inner)) + loss.kl_weight * t * mean(
        divergences
    )


def distillation(loss, encoder, batch):
    if loss.teacher.file is None:
        taught = embedded_by(loss.teacher.network, batch)
    else:
        taught = torch.tensor(loss.teacher.file[batch.rows]).to(batch.embeddings)
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
    if loss.teacher is None:
        rows = zip(batch.embeddings, batch.labels, strict=True)
        return mean([(row[0] @ row[1] - row[0] @ row[2] - margin).square() for row, margin in rows])
    for row, taught in zip(batch.embeddings, embedded_by(loss.teacher.network, batch), strict=True):
        for k in range(2, len(row)):
            student, teacher = (similarity(x[0], x[1]) - similarity(x[0], x[k]) for x in (row, taught))
            errors.append((student - teacher).square())
    return mean(errors)


def masked_language_model(loss, encoder, batch):
    inputs = {name: batch.inputs[name].flatten(0, 1) for name in encoder.tokenizer.model_input_names}
    inputs["input_ids"], labels = loss.mask(inputs["input_ids"])
    scores = loss.head.model.cls(encoder.backbone(**inputs).last_hidden_state)
    chosen = (labels != NOT_CHOSEN).nonzero().tolist()
    return mean([scores[i, k].logsumexp(dim=0) - scores[i, k, labels[i, k]] for i, k in chosen])


def states_after(layers, sentence, tokens, mask):
    """Return the last states of one sequence whose first state is a sentence vector, through layers of BERT."""
    states = torch.stack([sentence, *tokens[1:]])[None]
    hidden = states.new_zeros(len(mask)).masked_fill(mask == 0, -1e9).expand(1, 1, len(mask), -1)
    for layer in layers:
        output = layer(states, attention_mask=hidden)
        states = output if isinstance(output, torch.Tensor) else output[0]
    return states[0]


def infocse(loss, encoder, batch):
    """InfoCSE, one token at a time; the two frozen layers are the encoder's."""
    ids, mask = (batch.inputs[name].flatten(0, 1) for name in ("input_ids", "attention_mask"))
    masked, labels = loss.mask(ids)
    losses = []
    for sequence, attended, wanted, sentence in zip(masked, mask, labels, batch.pooled.flatten(0, 1), strict=True):
        with torch.no_grad():
            given = encoder.backbone(sequence[None], attention_mask=attended[None], output_hidden_states=True)
        states = states_after(loss.head_layers.encoder.layer, sentence, given.hidden_states[2][0], attended)
        for label, scores in zip(wanted.tolist(), loss.head.model.cls(states), strict=True):
            if label != NOT_CHOSEN:
                losses.append(scores.logsumexp(dim=0) - scores[label])
    return mean(losses)


def diffcse(loss, encoder, batch):
    """DiffCSE, one token at a time."""
    ids, mask = (batch.inputs[name].flatten(0, 1) for name in ("input_ids", "attention_mask"))
    edited = loss.edit(ids, mask) * mask + ids * (1 - mask)
    edited[:, 0] = ids[:, 0]
    losses = []
    for new, old, attended, sentence in zip(edited, ids, mask, batch.embeddings.flatten(0, 1), strict=True):
        tokens = loss.discriminator.embeddings(input_ids=new[None])[0]
        for before, after, state in zip(
            old, new, states_after(loss.discriminator.encoder.layer, sentence, tokens, attended), strict=True
        ):
            logits = loss.classifier.weight @ state + loss.classifier.bias
            losses.append(logits.logsumexp(dim=0) - logits[int(before != after)])  # padding counts, as equal
    return mean(losses)


def cosine_mse(loss, encoder, batch):
    pairs = zip(batch.embeddings, batch.labels, strict=True)
    return mean([(similarity(*pair) - score / loss.max_score).square() for pair, score in pairs])


def ranking(similarities, scores, temperature):
    """The loss of an order, of CoSENT and AnglE."""
    pairs = list(zip(similarities, scores, strict=True))
    terms = [((a - b) / temperature).exp() for (a, low), (b, high) in itertools.product(pairs, pairs) if low < high]
    return (1 + sum(terms)).log()


def cosent(loss, encoder, batch):
    return ranking([similarity(*pair) for pair in batch.embeddings], batch.labels, loss.temperature)


def angle(loss, encoder, batch):
    """AnglE, with complex division, and its contrast within the batch."""
    t, scores, sentences = loss.temperature, batch.labels, batch.embeddings.flatten(0, 1)
    differences = []
    for row in batch.embeddings:
        z, w = (torch.complex(*vector.chunk(2)) for vector in row)
        ratio = z / w * w.abs().square()  # z times the conjugate of w
        differences.append((ratio.real + ratio.imag).sum().abs() / row[0].norm() / row[1].norm())
    losses = []
    for i, partner in ((i, i + 1 - 2 * (i % 2)) for i in range(len(sentences)) if scores[i // 2] >= 1):
        logits = {j: similarity(sentences[i], key) / t for j, key in enumerate(sentences) if j != i}
        losses.append(log_sum_exp(logits.values()) - logits[partner])
    terms = {
        "angle": ranking(differences, scores, t),
        "in_batch": sum(losses) / len(sentences),
        "cosine": cosent(loss, encoder, batch),
    }
    return sum(loss.weights[name] * term for name, term in terms.items())


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


def cot_bert(loss, encoder, batch):
    """Equation 3 of CoT-BERT."""
    positives, hard = batch.embeddings[:, 1], batch.embeddings[:, 2:].flatten(0, 1)
    return contrastive(
        loss, encoder, batch, further=lambda i: (similarity(positives[i], key) / loss.temperature for key in hard)
    )


def dclr(loss, encoder, batch):
    """DCLR: a punished cosine becomes 0, so that it keeps exp(0); noise is moved along its gradient."""
    x, guided, t, n = batch.embeddings, loss.guide.embed(batch), loss.temperature, len(batch.embeddings)
    noise = torch.empty(int(n * loss.noise_ratio), x.shape[-1], dtype=x.dtype).normal_()
    for _ in range(loss.noise_steps):
        noise = noise.detach().requires_grad_()
        gradient = torch.autograd.grad(infonce_with(x[:, 0].detach(), x[:, 1].detach(), noise, t), noise)[0]
        steps = [loss.noise_step_size * direction / direction.norm() for direction in gradient]
        noise = noise.detach() + torch.stack(steps)
    total = 0
    for i in range(n):
        near = [i != j and similarity(guided[i, 0], guided[j, 1]) > loss.threshold for j in range(n)]
        scores = [0 * x.sum() if near[j] else similarity(x[i, 0], x[j, 1]) / t for j in range(n)]
        probabilities = softmax([*scores, *(similarity(x[i, 0], vector) / t for vector in noise)])
        for j, probability in enumerate(probabilities):
            total = total - (probability if i == j else 1 - probability).log() / n / len(probabilities)
    return total


def infonce_with(anchors, positives, further, temperature):
    losses = []
    for i, anchor in enumerate(anchors):
        scores = [similarity(anchor, key) / temperature for key in (*positives, *further)]
        losses.append(log_sum_exp(scores) - scores[i])
    return mean(losses)


def gs_infonce(loss, encoder, batch):
    noise = loss.std * torch.randn(loss.size, batch.embeddings.shape[-1])
    return contrastive(loss, encoder, batch.replaced(queue=torch.cat([batch.queue, noise])))


def mixcse(loss, encoder, batch):
    """MixCSE as its released code computes it: mixtures with the row after, and two pairs of similarity 0."""
    x, n, share, zero = batch.embeddings, len(batch.embeddings), loss.share, batch.embeddings.new_zeros(())

    def mixed(j, view):
        return (share * x[j, view] + (1 - share) * x[(j + 1) % n, view]).detach()

    def further(i):
        for j in range(n):
            yield zero if i == (j + 1) % n else similarity(x[i, 0], mixed(j, 1), loss.similarity) / loss.temperature
            yield zero if j == (i + 1) % n else similarity(mixed(i, 0), x[j, 1], loss.similarity) / loss.temperature

    return contrastive(loss, encoder, batch, further=further)


def pcl(loss, encoder, batch):
    """PCL by loops over rows, views and the entries of the distributions."""
    ours, n, t = batch.embeddings, len(batch.embeddings), loss.temperature
    theirs = embedded_by(lambda inputs: encoder.project(loss.pooler(loss.peer.pool(inputs))), batch)
    anchor, views = batch.roles.index(ANCHOR), batch.views(POSITIVE, OTHER)

    def distribution(a, b, i):
        scores = [similarity(a[i, anchor], b[i, view]) / t for view in views]
        return softmax(scores + [similarity(a[i, anchor], b[j, anchor]) / t for j in range(n) if j != i])

    loss, entries = infonce(theirs[:, anchor], theirs[:, views[0]], t), n * (len(views) + n - 1)
    for i in range(n):
        for network in (ours, theirs):
            for k, probability in enumerate(distribution(network, network, i)):
                sigmoid = probability.sigmoid()  # the probability takes the place of a logit
                loss = loss - (sigmoid if k < len(views) else 1 - sigmoid).log() / entries
        for p, q in (((ours, theirs), (theirs, ours)), ((ours, ours), (theirs, theirs))):
            loss = loss + divergence(distribution(*q, i), distribution(*p, i)) / entries
    return loss


def ranking_consistency(loss, encoder, batch):
    x, divergences = batch.embeddings, []
    for i in range(len(x)):
        p, q = (
            softmax([similarity(x[i, a], row[b]) / loss.temperature for row in x])
            for a, b in itertools.permutations([0, 1])
        )
        divergences += [divergence(distribution, (p + q) / 2) / 2 for distribution in (p, q)]
    return sum(divergences) / len(x)


def ranking_distillation(loss, encoder, batch):
    x, losses = batch.embeddings, []
    taught = [embedded_by(teacher.network, batch) for teacher in loss.teachers]
    for i in range(len(x)):
        scores = [similarity(x[i, 0], row[1]) / loss.temperature for row in x]
        of_teachers = [
            sum(share * similarity(y[i, 0], y[j, 1]) for share, y in zip(loss.shares, taught, strict=True))
            / loss.teacher_temperature
            for j in range(len(x))
        ]
        if loss.loss == "list_net":
            others = [j for j in range(len(x)) if j != i]
            p, q = (softmax([values[j] for j in others]) for values in (scores, of_teachers))
            losses.append(-sum(b * a.log() for a, b in zip(p, q, strict=True)))
        else:
            order = sorted(range(len(x)), key=lambda j: -of_teachers[j])
            places = [log_sum_exp([scores[j] for j in order[k:]]) - scores[order[k]] for k in range(len(x))]
            losses.append(sum(places))
    return mean(losses)


def dimension_contrast(loss, encoder, batch):
    def standardized(values):
        return (values - values.mean()) / (values.var(correction=0) + 1e-5).sqrt()

    losses = []
    for view in batch.views(POSITIVE):
        first, second = (list(map(standardized, batch.embeddings[:, k].T)) for k in [*batch.views(ANCHOR), view])
        for c, column in enumerate(first):
            scores = torch.stack([(column * other).mean() for other in second]) / loss.temperature
            losses.append(scores.logsumexp(dim=0) - scores[c])
    return mean(losses)


def negatives_without_dropout(loss, encoder, batch):
    x, t = batch.embeddings, loss.temperature
    plain = encoder.project(encoder.pool(inputs_of(encoder, batch, 0)))
    losses = []
    for i, row in enumerate(x):
        own = similarity(*row) / t
        negatives = [similarity(plain[i], plain[j]) / t for j in range(len(x)) if j != i]
        losses.append(log_sum_exp([own, *negatives]) - own)
    return mean(losses)


def bidirectional_margin(loss, encoder, batch):
    losses = []
    for row in batch.embeddings:
        anchor, positive, soft = (row[batch.roles.index(role)] for role in (ANCHOR, POSITIVE, OTHER))
        difference = similarity(anchor, soft) - similarity(anchor, positive)
        losses.append((difference + loss.alpha).relu() + (-difference - loss.beta).relu())
    return mean(losses)


def whitened(loss, encoder, batch):
    """WhitenedCSE: each view is whitened within random groups of dimensions, then projected."""
    views = [batch.pooled[:, view] for view in batch.views(ANCHOR, POSITIVE)]
    orders = torch.rand(len(views), views[0].shape[1]).argsort(dim=1)
    projected = []
    for rows, order in zip(views, orders, strict=True):
        result = torch.zeros_like(rows)
        for group in order.chunk(loss.groups):
            centered = rows[:, group] - rows[:, group].mean(dim=0)
            values, basis = torch.linalg.eigh(centered.T @ centered / len(rows))
            result = result.index_add(1, group, centered @ basis @ torch.diag(values**-0.5) @ basis.T)
        projected.append(encoder.project(result))
    return sum(infonce(projected[0], positives, loss.temperature) for positives in projected[1:])
