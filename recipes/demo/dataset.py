"""Turn texts into one stream of token ids and cut it into rows of equal length.

Every row starts where a document starts, as requests do; a document longer than a row goes on in the next one.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from corpus import read_chats, training_documents
from prompts import collect_prompts

TOKENIZER_BATCH = 2000
MIX_DONE = "mix_is_whole"


@dataclass(frozen=True)
class Part:
    """Tokens of one part of the mix.

    Args:
        stream: [num_tokens] uint16 ids, documents one after the other.
        starts: [num_documents] int64 offset of each document.
    """

    stream: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class PartOrder:
    """What a worker is asked for."""

    data_folder: Path
    checkpoint_folder: Path
    part: int
    num_parts: int
    seed: int
    limit: int | None


@dataclass(frozen=True)
class Mix:
    """All training text: the shuffled mix, and needles in long text, which only long rows hold."""

    short: Part
    long: Part

    def save(self, folder: Path) -> None:
        """Write the mix, so that a resumed run need not build it again."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in (("short", self.short), ("long", self.long)):
            np.save(folder / f"{name}_stream.npy", part.stream)
            np.save(folder / f"{name}_starts.npy", part.starts)
        (folder / MIX_DONE).touch()

    @staticmethod
    def load(folder: Path) -> Mix | None:
        """Read a written mix; None if there is no whole one."""
        if not (folder / MIX_DONE).is_file():
            return None
        parts = [
            Part(np.load(folder / f"{name}_stream.npy"), np.load(folder / f"{name}_starts.npy"))
            for name in ("short", "long")
        ]
        return Mix(*parts)


def join_parts(parts: list[Part]) -> Part:
    """Put parts one after the other."""
    offsets = np.cumsum([0, *[len(part.stream) for part in parts]])
    starts = [part.starts + offset for part, offset in zip(parts, offsets, strict=False)]
    return Part(np.concatenate([part.stream for part in parts]), np.concatenate(starts))


def encode(checkpoint_folder: Path, texts: list[str]) -> Part:
    """Tokenise texts into one stream."""
    from tokenizer import load_tokenizer

    tokenizer = load_tokenizer(checkpoint_folder)
    pieces: list[np.ndarray] = []
    lengths: list[int] = []
    for start in range(0, len(texts), TOKENIZER_BATCH):
        batch = tokenizer.encode_batch_fast(texts[start : start + TOKENIZER_BATCH], add_special_tokens=False)
        for encoding in batch:
            lengths.append(len(encoding))
            pieces.append(np.array(encoding.ids, dtype=np.uint16))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    return Part(np.concatenate(pieces), starts)


def make_part(order: PartOrder) -> Mix:
    """Build one part of the mix; runs in a worker process."""
    began = time.monotonic()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.nice(10)  # compilation in the parent goes first
    texts, needles = training_documents(order.data_folder, order.part, order.num_parts, order.seed, order.limit)
    read = time.monotonic()
    mix = Mix(encode(order.checkpoint_folder, texts), encode(order.checkpoint_folder, needles))
    if order.part == 0:
        print(f"part 0: texts {read - began:.1f} s, ids {time.monotonic() - read:.1f} s", flush=True)
    return mix


class PartsInProgress:
    """Parts of the mix, and prompts, that worker processes are building."""

    def __init__(
        self,
        data_folder: Path,
        checkpoint_folder: Path,
        seed: int,
        num_workers: int,
        limit: int | None,
        num_prompts: int,
        max_prompt: int,
    ) -> None:
        self.began = time.monotonic()
        orders = [
            PartOrder(data_folder, checkpoint_folder, part, num_workers, seed, limit) for part in range(num_workers)
        ]
        # HAZARD: forked workers share the parent's state, so this must run before the parent touches a device.
        self.pool = multiprocessing.get_context("fork").Pool(num_workers + 1)
        self.prompts = self.pool.apply_async(
            collect_prompts, (data_folder, checkpoint_folder, num_prompts, max_prompt, seed)
        )
        self.result = self.pool.map_async(make_part, orders, chunksize=1)

    def collect(self) -> tuple[Mix, list[list[int]]]:
        """Wait for all parts and join them; also return the prompts for self-written text."""
        parts, prompts = self.result.get(), self.prompts.get()
        self.pool.close()
        self.pool.join()
        mix = Mix(join_parts([part.short for part in parts]), join_parts([part.long for part in parts]))
        print(
            f"data: {len(mix.short.stream):,} tokens in {len(mix.short.starts):,} documents, {len(mix.long.stream):,} "
            f"in {len(mix.long.starts):,} needles, {time.monotonic() - self.began:.1f} s",
            flush=True,
        )
        return mix, prompts


def cut_rows(part: Part, length: int) -> np.ndarray:
    """Return the offset of every row of `length + 1` tokens, [num_rows] int64."""
    # Row after the one at `start`: the last document that begins inside it, else the rest of a long document.
    ends = part.starts + length
    following = part.starts[np.searchsorted(part.starts, ends, side="right") - 1]
    following = np.where(following > part.starts, following, ends)
    index_of = {int(start): index for index, start in enumerate(part.starts)}
    rows = []
    start, last = 0, len(part.stream) - length - 1
    while start <= last:
        rows.append(start)
        index = index_of.get(start)
        if index is not None:
            start = int(following[index])
        else:
            begun = int(part.starts[np.searchsorted(part.starts, start + length, side="right") - 1])
            start = begun if begun > start else start + length
    return np.array(rows, dtype=np.int64)


def heldout_part(data_folder: Path, checkpoint_folder: Path, count: int) -> Part:
    """Return held-out teacher chats as a stream, for the validation loss."""
    from chat_format import render
    from generators.task import assistant, user

    texts = []
    for question, reply in read_chats(data_folder, "heldout", 0, 3):
        texts.append(render([user(question), assistant(reply)]))
        if len(texts) >= count:
            break
    return encode(checkpoint_folder, texts)
