"""Training in miniature: a tiny target's checkpoint, features that are made up, and a head to train on them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from slipstream.config.checkpoint import read_checkpoint
from slipstream.config.schema import Eagle3Spec, EngineConfig, TargetSpec
from slipstream.training.data.texts import Text, make_text
from slipstream.training.eagle3.network import DraftNetwork
from slipstream.training.eagle3.trainer import Eagle3Trainer
from slipstream.training.interface import FeatureBatch
from slipstream.training.target import settle_target
from support.tiny_llm import make_tiny_llm

VOCAB = 24
HEAD = Eagle3Spec(
    hidden_size=16,
    target_hidden_size=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    rotary_dim=8,
    rope_theta=100.0,
    rms_norm_eps=1e-6,
    intermediate_size=24,
    vocab_size=VOCAB,
    draft_vocab_size=VOCAB // 2,
    max_position_embeddings=64,
    aux_layer_ids=(0, 2),
    hidden_act="silu",
    norm_before_fc=False,
    fc_norm=True,
    norm_output=True,
    norm_before_residual=False,
)
KEPT = torch.arange(0, VOCAB, 2)


def make_target(folder: Path, **geometry: object) -> tuple[Path, TargetSpec]:
    """Write a tiny checkpoint and return it with its network."""
    make_tiny_llm(folder, **geometry)
    return folder, read_checkpoint(folder).target


def engine_config(folder: Path, **options: object) -> EngineConfig:
    return settle_target(folder, drafter="none", device="cpu", threads=1, **options)


def make_head(seed: int = 0, spec: Eagle3Spec = HEAD) -> Eagle3Trainer:
    """Return a head with random weights, norms included."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = DraftNetwork(spec, 64)
        for parameter in network.parameters():
            if parameter.ndim == 1:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
    kept = KEPT if spec.draft_vocab_size != spec.vocab_size else torch.arange(spec.vocab_size)
    return Eagle3Trainer(spec, network, kept, num_unrolled=3, step_weight=0.8)


def make_features(
    lengths: tuple[int, ...], first_written: int = 2, seed: int = 0, *, is_learnable: bool = False
) -> FeatureBatch:
    """Return features of texts that are made up; embeddings follow from the tokens, as a real table's do.

    With `is_learnable` the next token follows from the last one.
    """
    source = torch.Generator().manual_seed(seed)
    batch, length = len(lengths), max(lengths)
    inside = torch.arange(length) < torch.tensor(lengths).unsqueeze(1)
    tokens = torch.randint(0, VOCAB, (batch, length), generator=source) * inside
    table = torch.randn(VOCAB, HEAD.hidden_size, generator=torch.Generator().manual_seed(99))

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source) * inside.reshape(batch, length, *(1 for _ in shape[2:]))

    logits = torch.randn(batch, length, VOCAB, generator=source) * 3
    if is_learnable:
        logits = 20 * torch.nn.functional.one_hot(tokens // 2 * 2, VOCAB).float()
    return FeatureBatch(
        token_ids=tokens,
        is_written=inside & (torch.arange(length) >= first_written),
        taps=random(batch, length, 2 * HEAD.target_hidden_size) * 2,
        embeddings=table[tokens] * inside.unsqueeze(-1),
        kept_probs=logits[..., KEPT].softmax(-1) * inside.unsqueeze(-1),
        favourites=logits.argmax(-1) * inside,
    )


def make_texts(count: int, seed: int = 0) -> list[Text]:
    """Return texts of different lengths, each with a prompt of two tokens."""
    source = torch.Generator().manual_seed(seed)
    lengths = torch.randint(6, 20, (count,), generator=source).tolist()
    return [
        make_text(torch.randint(0, VOCAB, (length,), generator=source).tolist(), 2, 0.7, number)
        for number, length in enumerate(lengths)
    ]


def write_prompts(path: Path, count: int = 12) -> Path:
    """Write a file of short conversations in two domains."""
    words = ("fox", "dog", "book", "end", "line", "user")
    lines = [
        {
            "domain": "a" if number % 2 else "b",
            "messages": [{"role": "user", "content": f"{words[number % 6]} {number}"}],
        }
        for number in range(count)
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path
