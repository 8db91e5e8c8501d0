"""A new tokenizer: of the model's kind, trained on the text, with a config that fits."""

import pytest
from transformers import AutoConfig, AutoTokenizer

from simcse_pl.models.encoder import SentenceEncoder

TEXT = ["the zyxwv sat", "a zyxwv ran", "zyxwv and zyxwv"] * 3


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_frequent_words_of_the_text_are_tokens_and_random_weights_fit(architecture, make_model, command, tmp_path):
    (tmp_path / "text.tsv").write_text("anchor\tpositive\n" + "".join(f"{line}\tqqq {line}\n" for line in TEXT))
    old = AutoTokenizer.from_pretrained(make_model(architecture))
    given = [make_model(architecture), tmp_path / "text.tsv", tmp_path / "new", "--vocabulary", "400"]
    printed = command("prepare", "tokenizer", *given).out
    new, config = (auto.from_pretrained(tmp_path / "new") for auto in (AutoTokenizer, AutoConfig))
    assert printed.startswith(f"{len(new)} tokens in ") and len(new) == config.vocab_size
    assert set(new.all_special_tokens) == set(old.all_special_tokens)
    assert type(new) is type(old) and config.pad_token_id == new.pad_token_id
    assert any("zyxwv" in token for token in new.tokenize("a zyxwv")) and not any("zyxwv" in t for t in old.get_vocab())
    assert any("qqq" in token for token in new.get_vocab())
    encoder = SentenceEncoder.from_pretrained(tmp_path / "new", pooling="cls", pretrained=False)
    assert encoder.encode(["a zyxwv"]).isfinite().all()
