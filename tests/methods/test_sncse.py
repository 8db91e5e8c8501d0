"""SNCSE: negation by rules, with and without a parser."""

from types import SimpleNamespace

import pytest

from simcse_pl.data.view import ViewInput
from simcse_pl.methods.sncse import Negation
from simcse_pl.utils.errors import UserError


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


LANGUAGES = {
    "zh": {
        "一个男人正在弹吉他。": "一个男人没有在弹吉他。",
        "一架飞机停在草地上。": "一架飞机没有停在草地上。",
        "大门是蓝色的。": "大门不是蓝色的。",
        "手机可以连接电脑上网吗": "手机不可以连接电脑上网吗",
        "委员会没有收到文件。": "委员会收到文件。",
        "男朋友不喜欢我了怎么办？": "男朋友喜欢我了怎么办？",
        "上海自来水来自海上": "上海自来水来自海上",
    },
    "de": {
        "Ein Mann spielt eine Gitarre.": "Ein Mann spielt keine Gitarre.",
        "Eine Frau schneidet Zwiebeln.": "Eine Frau schneidet keine Zwiebeln.",
        "Ein Mann reitet auf einem Pferd.": "Ein Mann reitet nicht auf einem Pferd.",
        "Ein Junge saugt den Boden auf.": "Ein Junge saugt den Boden nicht auf.",
        "Jemand hat das Bild gemalt.": "Jemand hat das Bild nicht gemalt.",
        "Der Präsident ist nicht so wichtig.": "Der Präsident ist so wichtig.",
        "Eine Katze, die in die Kamera schaut.": "Eine Katze, die in die Kamera nicht schaut.",
        "Zitate von Führern": "Zitate von Führern",
    },
    "ko": {
        "한 남자가 기타를 치고 있다.": "한 남자가 기타를 치고 있지 않다.",
        "그는 사과를 먹었다.": "그는 사과를 먹지 않았다.",
        "회사가 새 제품을 발표했습니다.": "회사가 새 제품을 발표하지 않았습니다.",
        "공원에 사람이 있다": "공원에 사람이 없다",
        "그는 학생이 아니다.": "그는 학생이다.",
        "그는 오지 않았다.": "그는 오지 않았다.",
        "날씨가 좋다.": "날씨가 안 좋다.",
    },
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_rules_of_other_languages(language):
    view = Negation(rules=language)
    view.check_text([])
    assert negations(view, *LANGUAGES[language]) == list(LANGUAGES[language].values())


def test_the_first_rule_that_matches_is_applied_once(tmp_path):
    (tmp_path / "fr.txt").write_text("# French\n@verb => est|a\n\n pas =>\n\\b(@verb) => n'\\1 pas\n", encoding="utf-8")
    view = Negation(rules=str(tmp_path / "fr.txt"))
    made = negations(view, "Il est ici, il est là.", "Il est pas là.", "Un chien.")
    assert made == ["Il n'est pas ici, il est là.", "Il est là.", "Un chien."]


def test_the_name_of_a_part_may_begin_another_one(tmp_path):
    rules = "@v => sees|hears", "@verb => eats|runs", r"(@verb) => does not \1", r"(@v) => never \1"
    (tmp_path / "en.txt").write_text("\n".join(rules))
    view = Negation(rules=str(tmp_path / "en.txt"))
    assert negations(view, "she runs home.", "she sees.") == ["she does not runs home.", "she never sees."]


@pytest.mark.parametrize(
    ("name", "message"),
    [("xx", "rules=xx: no such file; there are rules for de, en, "), ("bad.txt", "bad.txt, line 2: it should be PATT")],
)
def test_rules_that_cannot_be_read(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_text("a => b\n(a => b\n")
    with pytest.raises(UserError, match=message):
        Negation(rules=name)
