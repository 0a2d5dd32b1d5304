from __future__ import annotations

import re
from functools import partial

import pytest
import torch

from slipstream.base.errors import CheckpointError, KernelError, ShapeError
from slipstream.kernels.moe.experts_nvfp4 import layout, triton_parts
from slipstream.kernels.moe.experts_nvfp4.contract import experts_nvfp4
from slipstream.kernels.moe.experts_nvfp4.triton_impl import Plan, plan_for
from support import mutants
from support.kernel_cases import cases_of, check_case, check_mutant, inputs_of

OPERATION = "moe/experts_nvfp4"
SCALES = torch.arange(0x7F, dtype=torch.uint8)
"""Every e4m3 byte that a scale may be."""


def drawn(rows, columns, seed=0, num_experts=2):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (num_experts, rows, columns // 2), generator=generator, dtype=torch.uint8)
    scales = SCALES[torch.randint(1, 0x7F, (num_experts, rows, columns // 16), generator=generator)]
    return codes, scales.view(torch.float8_e4m3fn)


def as_bytes(scales):
    return scales.view(torch.uint8)


@pytest.mark.parametrize("case", cases_of(OPERATION), ids=lambda case: case.name)
def test_case_matches_the_oracle(case):
    check_case(OPERATION, case)


def written_out(x, expert_ids, expert_weights, w13, w13_scale, w2, w2_scale, alpha, limit, fault=None):
    """The operation through the plain experts, and what a mistaken one would do."""
    wide = [layout.dequantise(packed) for packed in (w13, w2)]
    if fault == "next_scale":
        wide = [layout.dequantise(moved_scales(packed)) for packed in (w13, w2)]
    gate, up = wide[0].chunk(2, dim=1) if fault == "not_interleaved" else layout.separate(wide[0])
    factors = (w2_scale, w13_scale) if fault == "factors_swapped" else (w13_scale, w2_scale)
    first = torch.cat((gate, up), dim=1) * factors[0][:, None, None]
    second = wide[1] * factors[1][:, None, None]
    if fault == "half_of_hidden":
        first[:, :, first.shape[2] // 2 :] = 0.0
    if fault == "small_scales_are_zero":
        first, second = (weight.masked_fill(weight.abs() < 0.004, 0.0) for weight in (first, second))
    if fault == "first_tile_only":
        expert_weights = expert_weights.clone()
        expert_weights[16:] = 0.0
    inner = (
        fault
        if fault
        in (
            "first_token",
            "first_weight",
            "swapped",
            "plain_silu",
            "no_one",
            "padding_is_last",
            "gate_clamped_below",
            "up_not_clamped",
            "alpha_is_fixed",
        )
        else None
    )
    return mutants.experts(x.float(), expert_ids, expert_weights, first, second, alpha, limit, fault=inner)


def moved_scales(packed):
    codes, scales = layout.unpack(packed)
    return layout.pack(codes, as_bytes(scales).roll(1, dims=2).view(torch.float8_e4m3fn))


@pytest.mark.parametrize(
    ("fault", "case_name"),
    [
        ("first_token", "batch"),
        ("first_weight", "batch"),
        ("swapped", "one_token"),
        ("not_interleaved", "one_token"),
        ("next_scale", "one_token"),
        ("factors_swapped", "batch"),
        ("plain_silu", "beyond_the_clamp"),
        ("gate_clamped_below", "beyond_the_clamp"),
        ("up_not_clamped", "beyond_the_clamp"),
        ("no_one", "beyond_the_clamp"),
        ("alpha_is_fixed", "beyond_the_clamp"),
        ("padding_is_last", "padding"),
        ("padding_is_last", "one_padding"),
        ("first_tile_only", "one_expert"),
        ("half_of_hidden", "split"),
        ("next_scale", "uneven_scales"),
    ],
)
def test_fault_is_outside_the_tolerance(fault, case_name):
    check_mutant(OPERATION, case_name, partial(written_out, fault=fault), written_out)


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (256, 128), (128, 384)])
def test_packing_has_an_exact_inverse(rows, columns):
    codes, scales = drawn(rows, columns, seed=rows + columns)
    packed = layout.pack(codes, scales)
    assert packed.shape == (2, rows // 128, columns // 128, layout.TILE_WORDS)
    assert packed.numel() * 4 == codes.numel() + scales.numel(), "a packed matrix takes not one byte more"
    again = layout.unpack(packed)
    assert torch.equal(again[0], codes)
    assert torch.equal(as_bytes(again[1]), as_bytes(scales))


def test_every_bit_of_a_tile_has_one_place():
    places = layout.code_places()
    assert len({(word, bit) for *_, word, bit in places}) == len({place[:3] for place in places}) == 64
    assert {bit for *_, bit in layout.scale_places()} == set(range(32))


def test_every_scale_keeps_its_value_and_zero_scales_make_zeros():
    codes, _ = drawn(128, 2048, num_experts=1)
    scales = SCALES.repeat(130)[: 128 * 128].view(1, 128, 128).view(torch.float8_e4m3fn)
    packed = layout.pack(codes, scales)
    again = layout.unpack(packed)
    assert torch.equal(as_bytes(again[1]), as_bytes(scales))
    is_zero = (scales.float() == 0).repeat_interleave(8, dim=2)
    assert is_zero.any()
    assert torch.equal(again[0], codes.masked_fill(is_zero, 0))
    table = torch.tensor([*layout._VALUES, *(-value for value in layout._VALUES)])
    values = table[torch.stack((codes & 15, codes >> 4), dim=-1).flatten(2).long()]
    wide = layout.dequantise(packed)
    assert torch.equal(wide, values * scales.float().repeat_interleave(16, dim=2))
    assert torch.equal(wide, wide.bfloat16().float()), "value times scale needs no more than bfloat16 has"


@pytest.mark.parametrize("byte", [0x7F, 0x80, 0x88, 0xFE, 0xFF])
def test_scales_that_are_negative_or_no_number_are_refused(byte):
    codes, scales = drawn(128, 128)
    as_bytes(scales)[1, 5, 3] = byte
    with pytest.raises(CheckpointError, match="1 of 2048 NVFP4 scales"):
        layout.pack(codes, scales)


@pytest.mark.parametrize(
    ("codes", "scales", "message"),
    [
        (torch.zeros(1, 120, 64, dtype=torch.uint8), torch.zeros(1, 120, 8), "multiples of 128"),
        (torch.zeros(1, 128, 96, dtype=torch.uint8), torch.zeros(1, 128, 12), "multiples of 128"),
        (torch.zeros(1, 128, 64, dtype=torch.int8), torch.zeros(1, 128, 8), "codes is .*int8"),
        (torch.zeros(1, 128, 64, dtype=torch.uint8), torch.zeros(1, 128, 8), "scales is .*float32"),
        (torch.zeros(1, 128, 64, dtype=torch.uint8), torch.zeros(1, 128, 4), r"allowed is \[1, 128, 8\]"),
        (torch.zeros(128, 64, dtype=torch.uint8), torch.zeros(128, 8), "codes is"),
    ],
)
def test_what_cannot_be_packed_is_refused(codes, scales, message):
    with pytest.raises(ShapeError, match=message):
        layout.pack(codes, scales)


def test_gate_and_up_take_turns_and_come_apart_again():
    gate, up = torch.arange(256).view(1, 256, 1), torch.arange(1000, 1256).view(1, 256, 1)
    rows = layout.interleave(gate, up)
    assert rows.flatten()[:96].tolist() == [*range(32), *range(1000, 1032), *range(32, 64)]
    again = layout.separate(rows)
    assert torch.equal(again[0], gate)
    assert torch.equal(again[1], up)
    with pytest.raises(ShapeError, match="multiple of 128"):
        layout.interleave(gate[:, :192], up[:, :192])
    with pytest.raises(ShapeError, match="as up has it"):
        layout.interleave(gate[:, :128], up)


def run_instructions(text, operands):
    """Carry out the instructions that dequantise, on 32-bit integers: the few kinds that there are."""
    registers = dict(operands)

    def value(name):
        return int(name, 16) if name.startswith("0x") else int(name) if name.isdigit() else registers[name]

    for line in re.findall(r"[^;{}]*(?:\{[^}]*\})?[^;{}]*(?:\{[^}]*\})?[^;{}]*;", text.strip()[1:-1]):
        kind, rest = line.strip().rstrip(";").split(None, 1)
        if kind == ".reg":
            continue
        groups = [part.strip() for part in re.findall(r"\{[^}]*\}|[^,{}]+", rest) if part.strip()]
        target, sources = groups[0], groups[1:]
        if kind == "and.b32":
            result = value(sources[0]) & value(sources[1])
        elif kind == "shl.b32":
            result = value(sources[0]) << value(sources[1]) & 0xFFFFFFFF
        elif kind == "shf.l.wrap.b32":
            both = value(sources[1]) << 32 | value(sources[0])
            result = both << value(sources[2]) >> 32 & 0xFFFFFFFF
        elif kind == "lop3.b32":
            result = 0
            for bit in range(32):
                a, b, c = (value(source) >> bit & 1 for source in sources[:3])
                result |= (value(sources[3]) >> (4 * a + 2 * b + c) & 1) << bit
        elif kind == "mov.b32" and target.startswith("{"):
            low, high = target.strip("{}").replace(" ", "").split(",")
            registers[low], registers[high] = value(sources[0]) & 0xFFFF, value(sources[0]) >> 16
            continue
        elif kind == "mov.b32":
            low, high = sources[0].strip("{}").replace(" ", "").split(",")
            result = registers[high] << 16 | registers[low]
        elif kind == "mul.rn.bf16x2":
            one, other = (as_pair(value(source)) for source in sources)
            bits = (one * other).view(torch.int16)
            result = (bits[1].item() & 0xFFFF) << 16 | bits[0].item() & 0xFFFF
        else:
            raise AssertionError(f"unknown instruction: {line}")
        registers[target] = result
    return registers


def as_pair(word):
    halves = torch.tensor([word & 0xFFFF, word >> 16], dtype=torch.int32).to(torch.int16)
    return halves.view(torch.bfloat16)


def scale_pairs(low, high):
    """The scales of a row as the kernel hands them to the instructions, checked for their own two instructions."""
    pairs = []
    for word in (low, high):
        turned = (word << 8 | word >> 24) & 0xFFFFFFFF
        pairs += [(each & 0x0FF00FF0) | 0x70007000 for each in (word, turned)]
    return pairs


@pytest.mark.parametrize("seed", range(12))
def test_inline_instructions_give_what_the_layout_says(seed):
    """Bit by bit, without a GPU: two neighbouring columns of one row, all eight groups."""
    codes, scales = drawn(128, 128, seed=seed, num_experts=1)
    tile = layout.pack(codes, scales)[0, 0, 0].tolist()
    wide = layout.dequantise(layout.pack(codes, scales))[0]
    generator = torch.Generator().manual_seed(seed)
    row, pair = (torch.randint(0, size, (), generator=generator).item() for size in (128, 8))
    big, warp, high, line = row // 64, row // 16 % 4, row // 8 % 2, row % 8
    place = big * 512 + warp * 128 + line * 16 + pair % 4 * 4 + pair // 4 * 2 + high
    word = 2048 + big * 128 + warp * 32 + line * 4 + high * 2
    pairs = scale_pairs(*(tile[word + half] & 0xFFFFFFFF for half in range(2)))
    operands = {"$8": tile[place] & 0xFFFFFFFF, "$9": tile[1024 + place] & 0xFFFFFFFF}
    for number, each in enumerate(pairs):
        operands[f"${10 + 2 * number}"] = operands[f"${11 + 2 * number}"] = each
    result = run_instructions(triton_parts.instructions(), operands)
    for group in range(8):
        columns = wide[row, 16 * group + 2 * pair : 16 * group + 2 * pair + 2]
        assert torch.equal(as_pair(result[f"${group}"]).float() * triton_parts.UNIT.value, columns), group


def test_padding_yields_zeros_even_from_nan():
    inputs = inputs_of(OPERATION, "padding")
    inputs["x"][-2:] = float("nan")
    result = experts_nvfp4(**inputs)
    assert not result[-2:].any()
    assert result[:-2].isfinite().all()


def test_empty_batch():
    inputs = inputs_of(OPERATION, "batch")
    for name in ("x", "expert_ids", "expert_weights"):
        inputs[name] = inputs[name][:0]
    assert experts_nvfp4(**inputs).shape == (0, 128)


def test_plans_divide_the_hidden_axis_and_fit_the_registers():
    for hidden_size, width in ((6144, 384), (6144, 768), (6144, 1536), (256, 128), (384, 128)):
        counts = (1, 8, 255, 256, 4096)
        plans = [plan_for(num_tokens, hidden_size, width) for num_tokens in counts]
        assert len({plan.split for plan in plans}) == 1, "a token's sums must not depend on its batch"
        assert hidden_size // 128 % plans[0].split == 0
        for num_tokens, plan in zip(counts, plans, strict=True):
            assert plan.max_registers * 32 * plan.num_warps * plan.blocks_per_processor <= 65536
            plan.check(block_tokens=16 if num_tokens < 256 else 64)
    with pytest.raises(KernelError, match="take fewer stages"):
        Plan(split=1, stages=9).check(block_tokens=16)
    assert Plan(split=1, blocks_per_processor=1, num_warps=4).max_registers == 255


def test_constants_of_the_activation_are_required():
    inputs = inputs_of(OPERATION, "batch")
    del inputs["limit"]
    with pytest.raises(TypeError, match="limit"):
        experts_nvfp4(**inputs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(7, 128)}, "x is .*float32"),
        ({"x": torch.zeros(7, 96, dtype=torch.bfloat16)}, r"x is \[7, 96\]"),
        ({"expert_ids": torch.zeros(7, 2, dtype=torch.int32)}, "expert_ids is .*int32"),
        ({"expert_weights": torch.zeros(7, 3)}, r"expert_weights is \[7, 3\]"),
        ({"w2": torch.zeros(5, 2, 1, 2304, dtype=torch.int32)}, r"w2 is \[5, 2, 1, 2304\]"),
        ({"w2": torch.zeros(5, 1, 1, 2304)}, "w2 is .*float32"),
        ({"w13": torch.zeros(5, 1, 1, 2304, dtype=torch.int32)}, r"w13 is \[5, 1, 1, 2304\]"),
        ({"w13": torch.zeros(5, 2, 1, 2048, dtype=torch.int32)}, r"allowed is \[5, 2, 1, 2304\]"),
        ({"w13_scale": torch.zeros(4)}, r"w13_scale is \[4\]"),
        ({"w2_scale": torch.zeros(5, dtype=torch.bfloat16)}, "w2_scale is .*bfloat16"),
    ],
)
def test_disagreements_are_refused(changes, message):
    with pytest.raises(ShapeError, match=message):
        experts_nvfp4(**{**inputs_of(OPERATION, "batch"), **changes})
