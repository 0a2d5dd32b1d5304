"""The peer of `slipstream bench decode`: the `transformers` package generating from the same checkpoint.

`transformers` is no dependency of the package; it is imported when a comparison with it is asked for.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipstream.base.errors import CheckpointError, ConfigError
from slipstream.config.quantization.read import read_quantization
from slipstream.harness.compare import Continuation

UNUSED_PARTS = ("vision", "multi_modal", "merge_linear", "patch_merge")


class TransformersContender:
    """Greedy generation with a cache, batch 1, in float32, as the package's own `generate` does it.

    Args:
        folder: the checkpoint.
        num_threads: CPU threads.

    Raises:
        ConfigError: the package is not installed.
        CheckpointError: it does not load the checkpoint completely.
    """

    name = "transformers"

    def __init__(self, folder: Path, num_threads: int) -> None:
        try:
            library: Any = importlib.import_module("transformers")
        except ImportError as error:
            raise ConfigError(
                f"--peer transformers: cannot import it ({error}): make setup-dev, or pip install transformers"
            ) from None
        self._torch: Any = importlib.import_module("torch")
        self._torch.set_num_threads(num_threads)
        library.utils.logging.set_verbosity_error()
        library.utils.logging.disable_progress_bar()
        with tempfile.TemporaryDirectory() as place:
            self._model = _load(library, _plain_copy(folder, Path(place) / "plain"), self._torch.float32)
        self._model.generation_config = library.GenerationConfig(do_sample=False, use_cache=True, pad_token_id=0)

    def generate(self, prompt_token_ids: Sequence[int], max_tokens: int) -> Continuation:
        """Continue a prompt by exactly `max_tokens` tokens; there is no end token."""
        ids = self._torch.tensor([list(prompt_token_ids)])
        with self._torch.inference_mode():
            out = self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                max_new_tokens=max_tokens,
                min_new_tokens=max_tokens,
            )
        return Continuation(token_ids=tuple(out[0, ids.shape[1] :].tolist()))


def _plain_copy(folder: Path, place: Path) -> Path:
    """Return a copy in bfloat16 of a quantised checkpoint, which the package reads only in part; else the folder."""
    if not read_quantization(folder).formats:
        return folder
    # By name: the command starts without torch.
    importlib.import_module("slipstream.weights.dequantise").dequantise_checkpoint(folder, place)
    return place


def _load(library: Any, folder: Path, dtype: Any) -> Any:
    config = library.AutoConfig.from_pretrained(folder)
    family = (
        library.AutoModelForCausalLM if config.model_type.endswith("_text") else library.AutoModelForImageTextToText
    )
    model, report = family.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    lost = [
        key
        for key in (*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"])
        if not any(part in str(key) for part in UNUSED_PARTS)
    ]
    if lost:
        raise CheckpointError(f"transformers does not load {folder} completely: {', '.join(map(str, lost[:5]))}")
    return model.eval()
