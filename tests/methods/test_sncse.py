"""SNCSE: negation by rules, with and without a parser."""

from types import SimpleNamespace

import pytest

from simcse_pl.data.views.view import ViewInput
from simcse_pl.methods.sncse import Negation


def negations(view, *sentences):
    return view([ViewInput(sentence, (), None, ()) for sentence in sentences])


@pytest.mark.parametrize(
    ("sentence", "negation"),
    [
        ("He is here.", "He is not here."),
        ("It was, in part, sold.", "It was not, in part, sold."),
        ("He is not here and not there.", "He is here and not there."),
        ("She likes tea.", "Not She likes tea."),
        ("Knots are island cannery.", "Knots are not island cannery."),
    ],
)
def test_without_a_parser_not_is_removed_or_follows_an_auxiliary(sentence, negation):
    assert negations(Negation(), sentence) == [negation]


def parsed(text):
    """Return tokens written as text/dep/tag/lemma; the tag and the lemma are optional."""
    fields = ([*one.split("/"), "", ""] for one in text.split())
    return [SimpleNamespace(text=text, dep_=dep, tag_=tag, lemma_=lemma) for text, dep, tag, lemma, *_ in fields]


@pytest.mark.parametrize(
    ("tokens", "negation"),
    [
        ("He/nsubj is/ROOT/VBZ/be not/neg not/neg here/advmod ./punct", "He is not here ."),
        ("He/nsubj has/aux/VBZ/have been/ROOT/VBN/be here/advmod ./punct", "He has not been here ."),
        ("She/nsubj knew/ROOT/VBD/know it/nsubj was/aux/VBD/be so/ccomp ./punct", "She did not know it was so ."),
        ("She/nsubj likes/ROOT/VBZ/like tea/dobj ./punct", "She does not like tea ."),
        ("Run/ROOT/VB/run !/punct", "Not Run !"),
        ("A/det day/ROOT/NN/day that/nsubj has/aux/VBZ/have come/relcl/VBN/come ./punct", "Not A day that has come ."),
    ],
)
def test_with_a_parser_the_root_decides_if_no_auxiliary_is_before_it(tokens, negation):
    view = Negation()
    view.parser = SimpleNamespace(pipe=lambda texts: [parsed(tokens)])
    assert negations(view, " ".join(token.text for token in parsed(tokens))) == [negation]


def test_a_sentence_without_punctuation_at_its_end_is_not_parsed():
    """The released code looks it up with a full stop that its file of negations does not have."""
    view = Negation()
    view.parser = SimpleNamespace(
        pipe=lambda texts: [parsed("He/nsubj is/ROOT/VBZ/be here/advmod ./punct") for _ in texts]
    )
    found = negations(view, "A title", "He is here .", "He is here", "He is here .", "")
    assert found == ["Not A title", "He is not here .", "Not He is here", "He is not here .", "Not "]
    assert view.role == "other"
