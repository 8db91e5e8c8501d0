"""A view: the anchor with a typing error."""

from simcse_pl.data.view import SentenceView, ViewInput


class Typo(SentenceView):
    """The sentence with two letters in the wrong order, within one of its words of four or more letters."""

    def make(self, source: ViewInput) -> str:
        """Return the sentence with the typing error. It stays as it is if all words are shorter."""
        words = source.sentence.split()
        if long := [place for place, word in enumerate(words) if len(word) >= 4]:
            place = source.random.choice(long)
            word = words[place]
            first = source.random.randrange(1, len(word) - 2)  # neither the first nor the last letter moves
            words[place] = word[:first] + word[first + 1] + word[first] + word[first + 2 :]
        return " ".join(words)
