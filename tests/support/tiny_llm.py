"""A checkpoint that `LLM` loads: a tiny random target with a tiny tokenizer and chat template."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from support.tiny_checkpoints import make_tiny_checkpoint
from support.tiny_text import backend_json, write_tiny_text


def make_tiny_llm(folder: Path, **geometry: object) -> Path:
    """Write the checkpoint into `folder` and return it."""
    vocab_size = tokenizers.Tokenizer.from_str(backend_json()).get_vocab_size()
    sizes = {"vocab_size": vocab_size, "max_position_embeddings": 256, **geometry}
    make_tiny_checkpoint(folder, vision=False, **sizes)
    return write_tiny_text(folder)
