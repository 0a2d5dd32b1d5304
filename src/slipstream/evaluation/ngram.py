"""An n-gram model over whole numbers, smoothed by interpolation after Witten and Bell: what a model has to beat.

Each order's estimate is mixed with that of the next shorter history; the share of the shorter one is the number of
different followers the history has, over that number plus the history's count. Below one symbol stands the uniform
distribution. Source: I. Witten and T. Bell, 1991, method C. Not here: what the symbols stand for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


class NgramModel:
    """Counts of histories and what follows them.

    Args:
        order: longest run of symbols that is counted; 5 looks four symbols back.
        num_symbols: size of the alphabet.

    Raises:
        ValueError: an order or an alphabet below 1.
    """

    def __init__(self, order: int, num_symbols: int) -> None:
        if order < 1 or num_symbols < 1:
            raise ValueError(f"order={order}, num_symbols={num_symbols}: both are at least 1")
        self.order = order
        self.num_symbols = num_symbols
        self.num_trained = 0
        # By length of the history. Histories are numbers in base num_symbols; a run is its history and one digit more.
        self._runs: list[dict[int, int]] = [{} for _ in range(order)]
        self._totals: list[dict[int, int]] = [{} for _ in range(order)]
        self._followers: list[dict[int, int]] = [{} for _ in range(order)]

    def train(self, sequences: Iterable[Sequence[int]]) -> None:
        """Count every symbol of the sequences with its histories; may be called again."""
        for symbols in sequences:
            self.num_trained += len(symbols)
            for place, symbol in enumerate(symbols):
                for length, history in self._histories(symbols, place):
                    self._count(length, history, symbol)

    def bits(self, symbols: Sequence[int]) -> list[float]:
        """Return -log2 of the probability of each symbol but the first, given those before it."""
        return [-math.log2(self.probability(symbols, place)) for place in range(1, len(symbols))]

    def probability(self, symbols: Sequence[int], place: int) -> float:
        """Return the probability of the symbol at `place` after those before it."""
        share = 1.0 / self.num_symbols
        for length, history in self._histories(symbols, place):
            total = self._totals[length].get(history)
            if total is None:
                # Longer histories were not seen either.
                break
            num_followers = self._followers[length][history]
            count = self._runs[length].get(history * self.num_symbols + symbols[place], 0)
            share = (count + num_followers * share) / (total + num_followers)
        return share

    def _histories(self, symbols: Sequence[int], place: int) -> Iterable[tuple[int, int]]:
        """Yield (length, number) of each history before `place`, the shortest first."""
        history, factor = 0, 1
        yield 0, 0
        for length in range(1, min(self.order - 1, place) + 1):
            history += symbols[place - length] * factor
            factor *= self.num_symbols
            yield length, history

    def _count(self, length: int, history: int, symbol: int) -> None:
        run = history * self.num_symbols + symbol
        seen = self._runs[length].get(run, 0)
        self._runs[length][run] = seen + 1
        self._totals[length][history] = self._totals[length].get(history, 0) + 1
        if not seen:
            self._followers[length][history] = self._followers[length].get(history, 0) + 1
