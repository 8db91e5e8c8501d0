"""Views of words: properties that hold for any sentence, over many random ones."""

import random
import string
from collections import Counter

import pytest

from simcse_pl.data.views.view import Original, SentenceView
from simcse_pl.data.views.words import Crop, DeleteOneWord, WordDeletion, WordRepetition
from simcse_pl.utils.errors import UserError

SHARES = [0.1, 0.15, 0.2, 0.3, 0.5, 0.99]
VIEWS = [Crop(0.3), WordDeletion(0.3), DeleteOneWord(), WordRepetition()]


def sentences(count: int = 300) -> list[str]:
    """Random sentences of 1 to 40 words, no word in one of them twice."""
    generator = random.Random(5)
    letters = string.ascii_letters + string.punctuation
    words = ["".join(generator.choices(letters, k=generator.randint(1, 8))) + str(i) for i in range(200)]
    return [" ".join(generator.sample(words, generator.randint(1, 40))) for _ in range(count)]


SENTENCES = sentences()


def positives(view: SentenceView, seed: int = 0, epoch: int = 0) -> list[str]:
    """The positives of all sentences, as a run would seed them."""
    return view([Original(s, (), random.Random(f"{seed}, {epoch}, {row}")) for row, s in enumerate(SENTENCES)])


def is_in_order(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(word in rest for word in part)


@pytest.mark.parametrize("share", SHARES)
def test_a_crop_is_a_contiguous_span_of_the_right_length(share):
    for sentence, positive in zip(SENTENCES, positives(Crop(share)), strict=True):
        words = sentence.split()
        assert f" {positive} " in f" {sentence} "
        kept = len(positive.split())
        assert kept == 1 or abs(kept - (1 - share) * len(words)) <= 0.5 + 1e-9


def test_a_crop_begins_anywhere_alike():
    crops = Crop(0.2)([Original("a b c d e f g h i j", (), random.Random(i)) for i in range(900)])
    assert Counter(crops) == {
        crop: pytest.approx(300, abs=60) for crop in ("a b c d e f g h", "b c d e f g h i", "c d e f g h i j")
    }


@pytest.mark.parametrize("share", SHARES)
def test_deletion_keeps_the_order_and_removes_the_right_number(share):
    for sentence, positive in zip(SENTENCES, positives(WordDeletion(share)), strict=True):
        words, kept = sentence.split(), positive.split()
        assert is_in_order(kept, words)
        assert len(kept) == 1 or abs(len(words) - len(kept) - share * len(words)) <= 0.5 + 1e-9


def test_deletion_takes_words_from_anywhere():
    deleted = Counter()
    for i in range(1000):
        (positive,) = WordDeletion(0.3)([Original("a b c d e f g h i j", (), random.Random(i))])
        deleted.update(set("abcdefghij") - set(positive.split()))
    assert deleted == {letter: pytest.approx(300, abs=60) for letter in "abcdefghij"}


def test_one_word_is_deleted():
    for sentence, positive in zip(SENTENCES, positives(DeleteOneWord()), strict=True):
        words = sentence.split()
        assert is_in_order(positive.split(), words)
        assert len(positive.split()) == max(1, len(words) - 1)


def test_repetition_keeps_the_order_and_repeats_each_word_once_at_most():
    for sentence, positive in zip(SENTENCES, positives(WordRepetition()), strict=True):
        words, repeated = sentence.split(), positive.split()
        assert list(dict.fromkeys(repeated)) == words
        assert repeated == sorted(repeated, key=words.index)  # a word's repetition stands beside it
        assert max(Counter(repeated).values()) <= 2
        assert len(repeated) - len(words) <= min(max(2, int(0.32 * len(words))), len(words) - 1)


@pytest.mark.parametrize(("length", "most"), [(2, 1), (3, 2), (6, 2), (12, 3), (20, 6)])
def test_any_number_of_repetitions_up_to_esimcses_is_as_likely(length, most):
    sentence = " ".join(string.ascii_letters[:length])
    repeated = WordRepetition()([Original(sentence, (), random.Random(i)) for i in range(2000)])
    added = Counter(len(positive.split()) - length for positive in repeated)
    share = 2000 / (most + 1)
    assert added == {count: pytest.approx(share, abs=5 * share**0.5) for count in range(most + 1)}


@pytest.mark.parametrize("view", [*VIEWS, Crop(0.99), WordDeletion(0.99), WordRepetition(1.0)])
def test_a_sentence_of_one_word_stays_as_it_is(view):
    for seed in range(20):
        assert view([Original("Alone!", (), random.Random(seed))]) == ["Alone!"]


@pytest.mark.parametrize("view", VIEWS)
def test_seed_epoch_and_row_say_it_all(view):
    once = positives(view)
    assert positives(view) == once
    assert all(view([Original(s, (), random.Random(f"0, 0, {row}"))]) == [once[row]] for row, s in enumerate(SENTENCES))
    for seed, epoch in ((0, 1), (1, 0)):
        changed = sum(a != b for a, b in zip(once, positives(view, seed, epoch), strict=True))
        assert changed > 0.7 * len(SENTENCES)


@pytest.mark.parametrize("view", VIEWS)
def test_the_global_random_state_is_left_alone(view):
    before = random.getstate()
    positives(view)
    assert random.getstate() == before


@pytest.mark.parametrize("view", [Crop, WordDeletion])
@pytest.mark.parametrize("share", [0, 1, -0.1, 10, float("nan")])
def test_a_share_out_of_range_is_told(view, share):
    with pytest.raises(UserError, match=f"^views.share={share}: it must be above 0 and below 1$"):
        view(share)


@pytest.mark.parametrize("rate", [0, 1.1, float("nan")])
def test_a_rate_out_of_range_is_told(rate):
    with pytest.raises(UserError, match=f"^views.rate={rate}: it must be above 0 and at most 1$"):
        WordRepetition(rate)
