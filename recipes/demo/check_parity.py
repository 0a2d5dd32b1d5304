"""Compare the training network with the `transformers` implementation of the architecture.

    python check_parity.py                      random weights, full size
    python check_parity.py CHECKPOINT_FOLDER    the weights of a folder

Prints the largest difference of logits over sequences longer than the selected blocks cover, through the training
forward and through the cached forward. Most sequences must be within the limit: in a few of them one of some thousand
choices (of a block, of an expert) is a near-tie that another order of summation decides differently.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from checkpoint import PREFIX, load_target, target_views
from decoding import read
from geometry import FULL, target_config
from network import Network
from torch import Tensor
from transformers.models.minimax_m3_vl.configuration_minimax_m3_vl import MiniMaxM3VLTextConfig
from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLForCausalLM

LIMIT = 2e-4
SEEDS = (5, 6, 7, 8, 9)


def randomise(network: Network, seed: int) -> None:
    """Draw weights large enough that every part of the layer matters, biases included."""
    source = torch.Generator().manual_seed(seed)
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        scale = 0.3 if tensor.ndim == 1 else 1.2 * tensor.shape[-1] ** -0.5
        with torch.no_grad():
            tensor.copy_(torch.randn(tensor.shape, generator=source) * (0.1 if name.endswith("bias") else scale))


def library_names(network: Network) -> dict[str, Tensor]:
    """Return the weights under the names and fusions of the library's modules."""
    views = target_views(network)
    named: dict[str, Tensor] = {}
    for name, tensor in views.items():
        short = name.replace(PREFIX, "model.").replace("language_model.", "")
        short = short.replace("block_sparse_moe.", "mlp.").replace("mlp.e_score", "mlp.gate.e_score")
        short = short.replace("self_attn.index_", "self_attn.indexer.")
        if ".experts." not in short and "gate_proj" not in short and "up_proj" not in short:
            named[short] = tensor
    for layer, block in enumerate(network.blocks):
        base = f"model.layers.{layer}.mlp."
        fused = torch.cat([block.mlp.gate, block.mlp.up], dim=1)
        if not block.mlp.sparse:
            named[f"{base}gate_up_proj.weight"] = fused[0]
            continue
        named[f"{base}experts.gate_up_proj"] = fused[:-1]
        named[f"{base}experts.down_proj"] = block.mlp.down[:-1].transpose(1, 2)
        named[f"{base}shared_experts.gate_up_proj.weight"] = fused[-1]
    return named


def library_model(network: Network) -> MiniMaxM3VLForCausalLM:
    """Build the library's model with the same weights."""
    text = dict(target_config(network.shape, {"bos": 0, "eos": 1, "image": 2, "video": 3})["text_config"])
    for key in ("architectures", "model_type", "torch_dtype"):
        text.pop(key)
    config = MiniMaxM3VLTextConfig(**text)
    config._attn_implementation = "eager"
    model = MiniMaxM3VLForCausalLM(config).float().eval()
    names = library_names(network)
    missing = model.load_state_dict({name: tensor.detach() for name, tensor in names.items()}, strict=False)
    if missing.missing_keys or missing.unexpected_keys:
        raise ValueError(f"weights do not line up with the library: {missing}")
    return model


@torch.no_grad()
def compare(network: Network, library: MiniMaxM3VLForCausalLM, length: int, seed: int) -> dict[str, float]:
    """Return the largest logit differences to the library, and how much selection changes the logits."""
    source = torch.Generator().manual_seed(seed)
    tokens = torch.randint(network.shape.vocab_size, (1, length), generator=source)
    expected = library(input_ids=tokens).logits
    rows = torch.arange(0, length, 7)
    trained = network.logits(network(tokens, rows, True, torch.float32)[0])
    full = network.logits(network(tokens, rows, False, torch.float32)[0])
    cached = network.logits(read(network, tokens, (), torch.float32)[0])
    return {
        "training": (trained - expected).abs().max().item(),
        "cached": (cached - expected).abs().max().item(),
        "selection": (full - expected).abs().max().item(),
        "largest": expected.abs().max().item(),
    }


def main() -> None:
    """Compare and exit with 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint_folder", type=Path, nargs="?")
    parser.add_argument("--length", type=int, default=400)
    options = parser.parse_args()
    if options.checkpoint_folder:
        network = load_target(options.checkpoint_folder)
    else:
        network = Network(FULL)
        randomise(network, 3)
    library = library_model(network)
    found = [compare(network, library, options.length, seed) for seed in SEEDS]
    print("largest difference of logits to the library; selection = what dense attention would differ by")
    for values in found:
        print("  ".join(f"{name} {value:.2e}" for name, value in values.items()))
    good = {name: sum(values[name] <= LIMIT for values in found) for name in ("training", "cached")}
    passed = all(count > len(SEEDS) // 2 for count in good.values())
    print(f"limit {LIMIT}: {good} of {len(SEEDS)} sequences within it:", "passed" if passed else "FAILED")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
