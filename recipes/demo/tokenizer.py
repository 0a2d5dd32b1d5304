"""Train and load the demo tokenizer: byte-level BPE of 4,032 entries plus 64 markers; every digit is a token.

Run as a script: `python tokenizer.py DATA_FOLDER CHECKPOINT_FOLDER`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chat_format import DOCUMENT_START, IMAGE, TURN_END, VIDEO, all_markers
from corpus import generated_documents, read_chats, read_documents
from geometry import FULL
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPLIT = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TOKENIZER_FILE = "tokenizer.json"


def new_tokenizer() -> Tokenizer:
    """Return the untrained tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sample_text(data_folder: Path, seed: int, per_source: int, num_generated: int) -> Iterator[str]:
    """Yield the text that the merges are learnt from: chats first, documents, then generated tasks."""
    rng = random.Random(seed)
    for question, reply in read_chats(data_folder, "train", 0, 6):
        yield question
        yield reply
    by_source = list(read_documents(data_folder, 0, 1))
    rng.shuffle(by_source)
    yield from by_source[:per_source]
    between_markers = re.compile("|".join(re.escape(marker) for marker, _ in all_markers()))
    for text in generated_documents(rng, num_generated, fillers=[]):
        yield from filter(None, between_markers.split(text))


def train(data_folder: Path, seed: int = 1, per_source: int = 2500, num_generated: int = 60_000) -> Tokenizer:
    """Train the merges and add the markers."""
    tokenizer = new_tokenizer()
    markers = all_markers()
    trainer = trainers.BpeTrainer(
        vocab_size=FULL.vocab_size - len(markers),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        max_token_length=16,
    )
    tokenizer.train_from_iterator(sample_text(data_folder, seed, per_source, num_generated), trainer)
    tokenizer.add_tokens([AddedToken(text, special=hidden, normalized=False) for text, hidden in markers])
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a checkpoint folder."""
    return Tokenizer.from_file(str(folder / TOKENIZER_FILE))


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids that config files name."""
    names = {"bos": DOCUMENT_START, "eos": TURN_END, "image": IMAGE, "video": VIDEO}
    return {name: tokenizer.token_to_id(text) for name, text in names.items()}


def tokenizer_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Build tokenizer_config.json."""
    table = {
        str(tokenizer.token_to_id(text)): {
            "content": text,
            "special": hidden,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "single_word": False,
        }
        for text, hidden in all_markers()
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": DOCUMENT_START,
        "eos_token": TURN_END,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": FULL.max_positions,
        "added_tokens_decoder": table,
    }


def main() -> None:
    """Train the tokenizer and write its two files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_folder", type=Path)
    parser.add_argument("checkpoint_folder", type=Path)
    options = parser.parse_args()
    tokenizer = train(options.data_folder)
    options.checkpoint_folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.checkpoint_folder / TOKENIZER_FILE))
    config = json.dumps(tokenizer_config(tokenizer), indent=1, ensure_ascii=False)
    (options.checkpoint_folder / "tokenizer_config.json").write_text(config + "\n")
    print("entries:", tokenizer.get_vocab_size(), special_ids(tokenizer))


if __name__ == "__main__":
    main()
