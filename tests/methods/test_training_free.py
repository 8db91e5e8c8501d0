"""MetaEOL against transformers' own model of single prompts, and the placeholder of Token Prepending."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel

from simcse_pl.methods.training_free import MeanOfTemplates, TokenPrepending
from simcse_pl.models.encoder import SentenceEncoder
from simcse_pl.models.load import fingerprint
from simcse_pl.postprocessing.linear import Whitening
from tests.conftest import SENTENCES

TEMPLATES = ['The topic of "{sentence}" in one word:"', 'What "{sentence}" means in one word:"', "{sentence}"]


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_vectors_are_the_means_over_all_templates(architecture, make_model):
    folder = make_model(architecture)
    encoder = MeanOfTemplates.from_pretrained(folder, "last_token", template=TEMPLATES, template_as_text="always")
    model, expected = AutoModel.from_pretrained(folder).eval(), []
    for sentence in SENTENCES:
        prompts = [template.replace("{sentence}", sentence) for template in TEMPLATES]
        with torch.no_grad():
            states = [model(**encoder.tokenizer(text, return_tensors="pt")).last_hidden_state for text in prompts]
        expected.append(sum(state[0, -1] for state in states) / 3)
    expected = torch.stack(expected)
    torch.testing.assert_close(encoder.encode(SENTENCES, 4), expected, atol=1e-5, rtol=0)
    for normalized in (
        encoder.encode(SENTENCES, normalize=True),
        encoder.encode(SENTENCES, 4, False, False, None, True),
    ):
        torch.testing.assert_close(normalized, F.normalize(expected), atol=1e-4, rtol=0)
    options = {"template": TEMPLATES, "template_as_text": "always", "prompts": {"query": TEMPLATES[0]}}
    prompted = MeanOfTemplates.from_pretrained(folder, "last_token", **options).encode(SENTENCES, prompt_name="query")
    alone = MeanOfTemplates.from_pretrained(folder, "last_token", **options | {"template": TEMPLATES[0]})
    torch.testing.assert_close(prompted, alone.encode(SENTENCES), atol=1e-5, rtol=0)
    encoder.postprocess = Whitening(dim=2).fit(expected)
    whitened = encoder.postprocess.transform(expected)
    torch.testing.assert_close(encoder.encode(SENTENCES), whitened, atol=1e-3, rtol=1e-3)
    encoder.truncate_dim = 1
    torch.testing.assert_close(encoder.encode(SENTENCES), whitened[:, :1], atol=1e-3, rtol=1e-3)
    assert encoder.templates.texts == TEMPLATES


def test_threads_that_encode_at_once_have_their_own_templates(make_model):
    encoder = MeanOfTemplates.from_pretrained(make_model("gpt2"), "last_token", template=TEMPLATES)
    expected = encoder.encode(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: encoder.encode(SENTENCES), range(8)):
            torch.testing.assert_close(vectors, expected)


def test_the_placeholder_is_not_added_to_the_users_tokenizer(make_model):
    encoder = MeanOfTemplates.from_pretrained(make_model("llama"), "last_token", template=TEMPLATES)
    size = len(encoder.tokenizer)
    made = TokenPrepending(encoder.backbone, encoder.tokenizer, TEMPLATES[0], pooling="last_token")
    assert len(made.tokenizer) == size + 1 and len(encoder.tokenizer) == size


def test_a_fingerprint_tells_classes_templates_and_layers_apart(make_model):
    def of(kind, texts=TEMPLATES, **options):
        return fingerprint(kind.from_pretrained(make_model("llama"), "last_token", template=texts, **options))

    mean, *others = [
        of(MeanOfTemplates),
        of(SentenceEncoder),
        of(MeanOfTemplates, TEMPLATES[:2]),
        of(MeanOfTemplates, truncate_dim=3),
        of(TokenPrepending),
        of(TokenPrepending, last_layer=3),
    ]
    assert mean == of(MeanOfTemplates) and len({mean, *others}) == 6 and None not in (mean, *others)


def test_a_placeholder_is_before_the_sentence_and_padding_has_no_effect(make_model):
    """tests/fidelity has the values of Token Prepending."""
    options = {"template_as_text": "always", "first_layer": 1, "last_layer": 2}
    encoder = TokenPrepending.from_pretrained(
        make_model("llama"), "last_token", template='The text "{sentence}" means:"', **options
    )
    assert encoder.templates.texts == ['The text <PST> "{sentence}" means:"']
    assert encoder.tokenizer.encode("<PST>", add_special_tokens=False) == [encoder.placeholder]
    alone = torch.cat([encoder.encode([sentence]) for sentence in SENTENCES])
    torch.testing.assert_close(encoder.encode(SENTENCES, batch_size=4), alone, atol=1e-5, rtol=0)
