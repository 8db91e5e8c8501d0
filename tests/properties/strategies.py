"""Texts and shapes of every kind, for the properties that hold for all of them."""

from hypothesis import strategies as st

# Line breaks to Python's splitlines but not to a file, what is no character, what joins, and what runs the other way.
ODD = (
    *("\u0085", "\u2028", "\u2029", "\x1c", "\x1d", "\x1e", "\x0b", "\x0c", "\r", "\t", "\xa0", "\u3000"),
    *("\ufeff", "\x00", "\x7f", "\u200b", "\u200d", "\ufffd", "\ufffe", "\U0010ffff"),
    *("e\u0301", "\u0301\u0323", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\ufe0f"),
    *("\u202e", "\u200f", "\u05e9\u05dc\u05d5\u05dd", "\u0645\u0631\u062d\u0628\u0627", "\u0e2a\u0e27", "半年"),
    *('"', "'", ",", "\\", "[MASK]", "[SEP]", "[PAD]", "</s>", "#", "0", "-", "a", "Ab", " "),
)


def texts(without: str = "", max_size: int = 12) -> st.SearchStrategy[str]:
    """Any text that UTF-8 can write, often of odd characters, without some of them."""
    characters = st.characters(codec="utf-8", exclude_characters=without)
    odd = st.sampled_from([odd for odd in ODD if not set(odd) & set(without)])
    return st.lists(odd | st.text(characters, max_size=4), max_size=max_size).map("".join)


def sentences(without: str = "") -> st.SearchStrategy[str]:
    """Text as readers give it: with something other than white space, and none around it."""
    return texts(without).map(str.strip).filter(bool)


def shapes(*largest: int, smallest: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of as many dimensions as there are largest sizes."""
    return st.tuples(*(st.integers(smallest, size) for size in largest))
