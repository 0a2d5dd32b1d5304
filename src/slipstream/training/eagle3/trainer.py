"""Training-time test: the head is unrolled for several steps on its own states, as it will be when it drafts.

From every place p of a text, step i takes token p + 1 + i and is asked for the target's distribution of token
p + 2 + i. Tokens are those of the text, states from step 1 on are the head's own.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from slipstream.config.schema import Eagle3Spec, TargetSpec
from slipstream.training.eagle3.design import choose_taps, design_head
from slipstream.training.eagle3.export import export_head
from slipstream.training.eagle3.network import DraftNetwork
from slipstream.training.interface import BatchLoss, FeatureBatch, TargetTables
from slipstream.training.settings import TrainSettings


class Eagle3Trainer:
    """A `DraftTrainer` of one head.

    Args:
        spec: of the head.
        network: the head.
        kept_ids: [draft_vocab_size] int64, ascending; target token of each row of the head.
        num_unrolled: draft steps of the loss.
        step_weight: weight of a step beside the one before it.
        eos_token_ids: of the target; written to the head's configuration.
    """

    def __init__(
        self,
        spec: Eagle3Spec,
        network: DraftNetwork,
        kept_ids: Tensor,
        *,
        num_unrolled: int,
        step_weight: float,
        eos_token_ids: tuple[int, ...] = (),
    ) -> None:
        self.spec, self._network, self._eos_token_ids = spec, network, eos_token_ids
        self._num_unrolled, self._step_weight = num_unrolled, step_weight
        self._kept_ids = kept_ids.to(network.fc.weight.device)
        # [vocab_size] int64; row of each token of the target, -1 for one that cannot be drafted
        self._row_of_token = torch.full((spec.vocab_size,), -1, device=self._kept_ids.device)
        self._row_of_token[self._kept_ids] = torch.arange(len(kept_ids), device=self._kept_ids.device)

    @property
    def module(self) -> nn.Module:
        """Return the head."""
        return self._network

    @property
    def tap_layers(self) -> tuple[int, ...]:
        """Return the tapped layers."""
        return self.spec.aux_layer_ids

    @property
    def kept_ids(self) -> Tensor:
        """Return the tokens that the head can draft."""
        return self._kept_ids

    def loss(self, batch: FeatureBatch) -> BatchLoss:
        """Return the soft cross-entropy to the target over unrolled steps.

        A place counts where the target wrote the token that is asked for, and where its likeliest token can be
        drafted at all. The count of right drafts takes such tokens for wrong ones.
        """
        num_rows = batch.token_ids.shape[1] - 1
        goal_rows = self._row_of_token[batch.favourites]
        # At place q: is the token behind q asked for.
        is_asked = _shift(batch.is_written, 1)
        is_usable = is_asked & (goal_rows >= 0)
        positions = torch.arange(num_rows, device=batch.token_ids.device)
        state = self._network.fuse(batch.taps[:, :num_rows])
        keys: list[Tensor] = []
        values: list[Tensor] = []
        total = torch.zeros((), device=state.device)
        is_right = _shift(is_asked, 1)[:, :num_rows]
        num_starts = is_right.sum()
        reached: list[Tensor] = []
        for step in range(self._num_unrolled):
            embeddings = _shift(batch.embeddings, step + 1)[:, :num_rows]
            logits, state = self._network.step(state, embeddings, positions + step, keys, values)
            goal = _shift(batch.kept_probs, step + 1)[:, :num_rows]
            weight = _shift(is_usable, step + 1)[:, :num_rows].float()
            entropy = -(goal.float() * logits.float().log_softmax(-1)).sum(-1)
            total = total + self._step_weight**step * (entropy * weight).sum() / weight.sum().clamp_min(1.0)
            with torch.no_grad():
                wanted = _shift(goal_rows, step + 1)[:, :num_rows]
                is_right = is_right & (logits.argmax(-1) == wanted) & _shift(is_asked, step + 1)[:, :num_rows]
                reached.append(is_right.sum())
        return BatchLoss(total, torch.stack(reached), num_starts)

    def export(self, folder: Path) -> None:
        """Write the head in the field's layout."""
        export_head(folder, self.spec, self._network, self._kept_ids, self._eos_token_ids)


def build_eagle3(
    target: TargetSpec, tables: TargetTables, kept_ids: Tensor, settings: TrainSettings, device: torch.device
) -> Eagle3Trainer:
    """Return a new head for a target, its output rows taken over from the target's own.

    Args:
        target: the network that is drafted for.
        tables: of that network.
        kept_ids: [draft_vocab_size] int64, ascending.
        settings: of the run; the seed decides the first weights.
        device: where it is trained.
    """
    spec = design_head(target, choose_taps(settings.tap_layers, target.num_layers), len(kept_ids))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = DraftNetwork(spec, settings.max_length + settings.num_unrolled)
    with torch.no_grad():
        network.lm_head.weight.copy_(tables.head_rows(kept_ids))
    return Eagle3Trainer(
        spec,
        network.to(device),
        kept_ids,
        num_unrolled=settings.num_unrolled,
        step_weight=settings.step_weight,
        eos_token_ids=target.eos_token_ids,
    )


def _shift(x: Tensor, by: int) -> Tensor:
    """Return x moved towards the front of axis 1 by `by`; zeros (or false) follow."""
    return torch.cat([x[:, by:], torch.zeros_like(x[:, :by])], 1)
