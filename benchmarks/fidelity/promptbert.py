"""PromptBERT (Jiang et al. 2022), by the authors' class and their preparation of sentences."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.fidelity.common import PAIRS, TRIPLETS, Record, Repository, arguments, features, official_model, tokenizer
from benchmarks.fidelity.simcse import NAMES

TRANSFORM = {"mlp.dense.": "encoder.projection.0.", "mlp.LayerNorm.": "encoder.projection.2."}
COUNTED = "torch.arange(d_input_ids.shape[1])"


def records(folders: Path) -> Iterator[Record]:
    """Yield the unsupervised and the supervised losses, for both kinds of tokenizer."""
    repository = Repository(folders, "kongds/Prompt-BERT", "690ba6e")
    official = {
        "bert": repository.load("prompt_bert/models.py").BertForCL,
        "roberta": repository.load(
            "prompt_bert/models.py", lambda source: source.replace(COUNTED, f"2 + {COUNTED}")
        ).RobertaForCL,
    }
    repaired = {"bert": "", "roberta": "the position ids of the bias begin at 2, as those of the sentences, not at 0"}
    for name, rows, given, templates, names in (
        (
            "promptbert_bert",
            PAIRS,
            ["method=promptbert"],
            ('This sentence of "|" means[MASK].', 'This sentence : "|" means[MASK].'),
            NAMES,
        ),
        (
            "promptbert_roberta",
            PAIRS,
            ["experiment=promptbert_roberta_base"],
            ("This sentence : '|' means<mask>.", "The sentence : '|' means<mask>."),
            NAMES,
        ),
        (
            "promptbert_sup_bert",
            TRIPLETS,
            ["experiment=promptbert_sup_bert_base"],
            ('This sentence of "|" means[MASK].', ""),
            TRANSFORM,
        ),
        (
            "promptbert_sup_roberta",
            TRIPLETS,
            ["experiment=promptbert_sup_roberta_base"],
            ("This sentence : '|' means<mask>.", ""),
            NAMES,
        ),
    ):
        architecture = name.split("_")[-1]
        record = Record(name, repository, given, names, rows, repaired[architecture], architecture)
        words = tokenizer(architecture)
        (begin, end), (begin_2, end_2) = ((template + "|").split("|")[:2] for template in templates)
        if architecture == "roberta":
            end, end_2 = f" {end}", f" {end_2}"
        options = arguments(
            mask_embedding_sentence=True, mask_embedding_sentence_different_template=templates[1],
            mask_embedding_sentence_bs=begin, mask_embedding_sentence_es=end,
            mask_embedding_sentence_bs2=begin_2, mask_embedding_sentence_es2=end_2,
            mask_embedding_sentence_num_masks=1, mask_embedding_sentence_delta=True,
            mask_embedding_sentence_org_mlp="mlp.LayerNorm." in names, mask_embedding_sentence_delta_freeze=False,
            mask_embedding_sentence_autoprompt=False, mask_embedding_sentence_delta_no_position=False,
            temp=0.05, dot_sim=False, norm_instead_temp=False, hard_negative_weight=0.0, only_embedding_training=False,
        )  # fmt: skip
        prepare = repository.nested(
            "train.py", "prepare_features", tokenizer=words, model_args=options,
            data_args=arguments(max_seq_length=32, pad_to_max_length=False), **record.column_names(),
        )  # fmt: skip
        inputs = features(prepare, rows, words.pad_token_id)
        model = official_model(official[architecture], architecture, model_args=options)
        model.mask_token_id, model.pad_token_id = words.mask_token_id, words.pad_token_id
        model.bs, model.es = (words.encode(text, add_special_tokens=False) for text in (begin, end))
        model.mask_embedding_template = words.encode(begin + end)
        model.mask_embedding_template2 = words.encode(begin_2 + end_2)
        record.run(model, inputs, lambda model, inputs=inputs: model(**inputs).loss)
        yield record
