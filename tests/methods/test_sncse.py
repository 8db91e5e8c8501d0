"""SNCSE: negation by rules, with and without a parser."""

import sys
from types import SimpleNamespace

import pytest

from simcse_pl.data.views.view import ViewInput
from simcse_pl.methods.sncse import BidirectionalMargin, Negation
from simcse_pl.utils.errors import UserError


def parsed(text):
    """Return tokens written as text/dep/tag/lemma; the tag and the lemma are optional."""
    fields = ([*one.split("/"), "", ""] for one in text.split())
    return [SimpleNamespace(text=text, dep_=dep, tag_=tag, lemma_=lemma) for text, dep, tag, lemma, *_ in fields]


def parser_of(*sentences):
    """Return a pipeline of spaCy that knows these sentences."""
    tokens = {" ".join(token.text for token in one): one for one in map(parsed, sentences)}

    def pipe(texts):
        return (tokens[text] for text in texts)

    return SimpleNamespace(pipe=pipe)


def negations(view, *sentences):
    return view([ViewInput(sentence, (), None, ()) for sentence in sentences])


@pytest.mark.parametrize(
    ("sentence", "negation"),
    [
        ("He is here.", "He is not here."),
        ("It was, in part, sold.", "It was not, in part, sold."),
        ("Can they see?", "Can not they see?"),
        ("He is not here and not there.", "He is here and not there."),
        ("(not) here.", "() here."),
        ("She likes tea.", "Not She likes tea."),
        ("A title", "Not A title"),
        ("A title that is long", "Not A title that is long"),
        ("Knots are island cannery.", "Knots are not island cannery."),
    ],
)
def test_without_a_parser_not_is_removed_or_follows_an_auxiliary(sentence, negation):
    assert negations(Negation(), sentence) == [negation]


@pytest.mark.parametrize(
    ("tokens", "negation"),
    [
        ("He/nsubj is/ROOT/VBZ/be not/neg not/neg here/advmod ./punct", "He is not here ."),
        ("He/nsubj has/aux/VBZ/have been/ROOT/VBN/be here/advmod ./punct", "He has not been here ."),
        ("It/nsubj was/auxpass/VBD/be sold/ROOT/VBN/sell ./punct", "It was not sold ."),
        ("She/nsubj is/ROOT/VBZ/be to/aux/TO/to go/xcomp/VB/go ./punct", "She is not to go ."),
        ("They/nsubj Are/ROOT/VBP/be here/advmod ./punct", "They Are not here ."),
        ("They/nsubj like/ROOT/VBP/like tea/dobj ./punct", "They do not like tea ."),
        ("She/nsubj likes/ROOT/VBZ/like tea/dobj ./punct", "She does not like tea ."),
        ("She/nsubj knew/ROOT/VBD/know it/dobj ./punct", "She did not know it ."),
        ("It/nsubj knew/ROOT/VBD/know it/nsubj was/aux/VBD/be so/ccomp ./punct", "It did not know it was so ."),
        ("Run/ROOT/VB/run !/punct", "Not Run !"),
        ("A/det day/ROOT/NN/day that/nsubj has/aux/VBZ/have come/relcl/VBN/come ./punct", "Not A day that has come ."),
        ("No/det root/dep ./punct", "Not No root ."),
    ],
)
def test_with_a_parser_the_root_decides_if_no_auxiliary_is_before_it(tokens, negation):
    view = Negation()
    view.parser = parser_of(tokens)
    assert negations(view, " ".join(token.text for token in parsed(tokens))) == [negation]


def test_a_sentence_without_punctuation_at_its_end_is_not_parsed():
    """The released code looks it up with a full stop that its file of negations does not have."""
    view = Negation()
    view.parser = parser_of("He/nsubj is/ROOT/VBZ/be here/advmod ./punct")
    found = negations(view, "A title", "He is here .", "He is here", "He is here .", "")
    assert found == ["Not A title", "He is not here .", "Not He is here", "He is not here .", "Not "]
    assert view.role == "other"


def test_a_missing_library_or_model_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UserError, match="^spacy_model=small: spaCy is not installed: pip install spacy; or set it to"):
        Negation("small")
    loaded = []

    def load(name, exclude):
        loaded.append((name, exclude))
        if name == "large":
            raise OSError("[E050]")
        return "the pipeline"

    monkeypatch.setitem(sys.modules, "spacy", SimpleNamespace(load=load))
    assert Negation("small").parser == "the pipeline"
    with pytest.raises(UserError, match="^spacy_model=large: spaCy has no such model here: python -m spacy down"):
        Negation("large")
    assert loaded == [("small", ["ner"]), ("large", ["ner"])]


def test_margins_that_exclude_each_other_are_an_error():
    with pytest.raises(UserError, match="^alpha=0.5: it must be at most beta, 0.3$"):
        BidirectionalMargin(alpha=0.5)
