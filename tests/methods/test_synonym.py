"""The synonym view with a small lexicon in WordNet's format."""

import random

from simcse_pl.data.view import ViewInput
from simcse_pl.methods.augmentations import Synonym

LEXICON = {
    "data.noun": "00000050 05 n 03 dog 0 hound 0 house_dog 0 001 @ 00000099 n 0000 | a pet\n"
    "00000099 05 n 01 animal 0 000 | no synonym\n"
    "00000120 05 n 02 inch 0 in 0 000 | a length\n"
    "00000160 15 n 02 Lagos 0 Eko 0 000 | a city\n",
    "data.verb": "00000050 38 v 02 run 0 dog 1 000 01 + 01 00 | follow\n",
    "data.adj": "00000050 00 s 02 galore(ip) 0 abundant 0 000 | in numbers\n",
    "data.adv": "00000050 02 r 01 fast 0 000 | quickly\n",
}


def test_one_word_is_replaced_by_any_of_its_synonyms(tmp_path):
    """A stop word, such as `in`, has none."""
    for name, text in LEXICON.items():
        (tmp_path / name).write_text(f"  1 A small lexicon, in the format of wndb(5WN).  \n{text}")
    view = Synonym(tmp_path)
    assert view.thesaurus["galore"] == ["abundant"] and "in" not in view.thesaurus
    inputs = [ViewInput("(Dog, and animal in Lagos!", (), random.Random(i), ()) for i in range(200)]
    assert set(view(inputs)) == {
        "(Hound, and animal in Lagos!",
        "(House dog, and animal in Lagos!",
        "(Run, and animal in Lagos!",
        "(Dog, and animal in Eko!",
    }
