"""The sentence of an answer: what is taken off, and what is refused."""

import pytest

from simcse_pl.tools.answers import verdict
from tests.tools.test_synthesize import make


@pytest.mark.parametrize(
    "answer",
    [
        *("Positive: It pours.", "**Positive:** It pours.", "Final answer: It pours.", "Option 1: It pours."),
        *("Here is the rewritten sentence: It pours.", "Sure! Here's a paraphrase: It pours."),
        *("Here is one:\n\nRewritten sentence 1: “It pours.”", 'Sure, here it is: "It pours."'),
        *("Der Satz lautet: It pours.", "Antwort: „It pours.“", "Voici une reformulation : « It pours. »"),
        *("句子1：It pours.", "以下是改写：\nIt pours.", "好的，以下是改写后的句子：「It pours.」"),
        *("**Rewritten Sentence**\nIt pours.", "### A heading\nIt pours.", "Certainly!\n\nIt pours."),
        *(
            "1. **It pours.**\n2. It is wet.",
            "a) It pours.",
            "#1: It pours.",
            "> It pours.",
            "– It pours.",
            "(1) It pours.",
        ),
        *("__It pours.__", "_It pours._", "‘It pours.’", "It pours.<|im_end|>", "It pours.</s>"),
        *("It pours.\n\n(Note: I changed the verb.)", "Here you go:\n```\nIt pours.\n```"),
        *('{"positive": "It pours."}', '["It pours."]', 'Sure:\n```json\n{"positive": "It pours."}\n```'),
        'This is it:\n{"positive":\n "It pours."}',
        *("<think>Rain?</think>\n\nIt pours.", "<thinking>Hm.</thinking>It pours.", "[THINK]Hm[/THINK]It pours."),
        *("Rain?\n</thought>\nIt pours.", "◁think▷Hm.\n◁/think▷It pours."),
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>It pours.",
    ],
)
def test_what_is_around_a_sentence_is_taken_off(answer, tmp_path):
    assert make(tmp_path, str)._sentence(answer, "It rains.") == "It pours."


@pytest.mark.parametrize(
    "answer",
    [
        *("", "...", "None", "N/A", "Sentence:", "{sentence}", "<p>It pours.</p>", "It pours. (I changed the verb.)"),
        *(
            "Note: I kept the meaning.\nIt pours.",
            "Step 1: Find the verb.\nIt pours.",
            "It pours.\nI changed the verb.",
        ),
        *(
            "In simpler terms: it pours.",
            'One could say "It pours."',
            'Certainly! "It pours."',
            "It **pour.",
            "I [verb].",
        ),
        *('{"positive": "It pours.", "reason": "rain"}', '{"positive": "It po', "{'positive': 'It pours.'}"),
        *("<think>never ends", "[THINK]never ends", "<|channel|>analysis<|message|>never ends"),
        *("I can't assist with that request.", "I’m sorry, but I can’t help.", "As an AI language model, I cannot"),
        *("I apologize, but I cannot rewrite this.", "Unfortunately, I can’t do that.", "I'm unable to rephrase this."),
        *(
            "Es tut mir leid, aber das geht nicht.",
            "Ich kann diesen Satz nicht umformulieren.",
            "Leider kann ich das nicht.",
        ),
        *("Je suis désolé, mais non.", "Je ne peux pas répondre.", "En tant qu’IA, je refuse."),
        *("抱歉，我无法改写这个句子。", "对不起，我不能。", "作为一个人工智能，我不会。", "我无法回答。"),
    ],
)
def test_refusals_and_doubtful_answers_are_refused(answer, tmp_path):
    assert make(tmp_path, str)._sentence(answer, "It rains.") == ""


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ("1. Heat the milk.", "1. Warm the milk."),
        ("Answer: no.", "Answer: yes."),
        ("[Music] It pours at 5: run!", "[Music] It rains at 5: go!"),
        ('He said "no" (twice).', "He said “yes” (once)."),
        ("I cannot swim.", "I can swim."),
        ("Ich kann nicht schwimmen.", "Ich schwimme."),
        ("3.5 million people left at 5:30.", "Millions left in the afternoon."),
        ("It's five o'clock.", "It is 5 pm."),
    ],
)
def test_what_belongs_to_a_sentence_stays(answer, given, tmp_path):
    assert make(tmp_path, str)._sentence(answer, given) == answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        *(("Contradiction: it does.", 0.0), ("**Entailment**", 1.0), ("Answer: entailment", 1.0), ("1. No.", 0.0)),
        *(("蕴含。", 1.0), ("<think>No.</think>Yes", 1.0), ("It is not entailment.", None), ("", None)),
    ],
)
def test_the_verdict_is_the_first_word(answer, expected):
    assert verdict(answer) == expected
