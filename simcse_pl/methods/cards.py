"""CARDS (Wang et al. 2022): the view in which some words have the other case."""

from simcse_pl.data.view import Rate, SentenceView, ViewInput
from simcse_pl.utils.types import Role


class SwitchCase(SentenceView):
    """The sentence with the first letter of some words in the other case (CARDS, Wang et al. 2022, 3.1).

    In plain terms: a cased tokenizer gives other tokens for `continues` and `Continues`, whose meanings are the same. A
    word that does not begin with a letter stays as it is.

    Args:
        probability: the probability of each word to be switched, or the fraction of words that are.
        independent: whether words are switched independently. If not, the number of words is rounded to the nearest
            integer, but at least 1.
    """

    def __init__(self, probability: Rate = 0.05, independent: bool = True, role: Role = Role.POSITIVE) -> None:
        super().__init__(role)
        self.probability, self.independent = probability, independent

    def make(self, source: ViewInput) -> str:
        words = source.sentence.split()
        switchable = [i for i, word in enumerate(words) if word[0].isalpha()]
        if self.independent:
            switched = [i for i in switchable if source.random.random() < self.probability]
        else:
            count = max(1, round(len(words) * self.probability))
            switched = source.random.sample(switchable, min(count, len(switchable)))
        for i in switched:
            first = words[i][0]
            words[i] = (first.upper() if first.islower() else first.lower()) + words[i][1:]
        return " ".join(words)
