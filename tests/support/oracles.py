"""Operations written out rule by rule: Python loops over float64 numbers. Slow, and sharing no code with references.

Every oracle takes the keyword arguments of the operation's contract and returns float64 or integer tensors.
"""

from __future__ import annotations

import math

import torch

from slipstream.kernels.linear.matmul_mxfp8 import plan

NEG_INF = float("-inf")
# The float32 next to -1e30: scores are float32.
NAN_SCORE = torch.tensor(-1e30, dtype=torch.float32).item()


def rms_norm(x, weight, eps, gemma):
    out = torch.zeros(x.shape, dtype=torch.float64)
    for i, row in enumerate(x.double().tolist()):
        root = math.sqrt(sum(value * value for value in row) / len(row) + eps)
        for j, value in enumerate(row):
            gain = weight[j].item() + (1.0 if gemma else 0.0)
            out[i, j] = value / root * gain
    return out


def add_rms_norm(x, residual, weight, eps, gemma):
    total = (x.double() + residual.double()).to(x.dtype)
    return rms_norm(total, weight, eps, gemma), total.double()


def sum_add_rms_norm(parts, extra, residual, weight, eps, gemma):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    output = total.to(residual.dtype)
    if extra is not None:
        output = (output.double() + extra.double()).to(residual.dtype)
    return add_rms_norm(output, residual, weight, eps, gemma)


def qk_norm_rope(x, weight, kind_of_head, eps, gemma, rope_table, positions):
    num_tokens, num_heads, head_dim = x.shape
    half = rope_table.shape[1] // 2
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token in range(num_tokens):
        angles = rope_table[max(positions[token].item(), 0)].double()
        for head in range(num_heads):
            row = x[token, head].double().tolist()
            if weight is not None:
                gains = weight[kind_of_head[head]].double().tolist()
                root = math.sqrt(sum(value * value for value in row) / head_dim + eps)
                row = [value / root * (gain + (1.0 if gemma else 0.0)) for value, gain in zip(row, gains, strict=True)]
            turned = list(row)
            for i in range(half):
                cosine, sine = angles[i].item(), angles[half + i].item()
                turned[i] = row[i] * cosine - row[half + i] * sine
                turned[half + i] = row[half + i] * cosine + row[i] * sine
            out[token, head] = torch.tensor(turned, dtype=torch.float64)
    return out


def write_kv(
    k,
    v,
    k_pages,
    v_pages,
    slot_mapping,
    index_k=None,
    index_k_pages=None,
    index_slot_mapping=None,
    k_scale=1.0,
    v_scale=1.0,
):
    """Return the pages as they must be afterwards; the arguments stay as they are."""
    writes = [(k, k_pages, slot_mapping, k_scale), (v, v_pages, slot_mapping, v_scale)]
    if index_k is not None:
        writes.append((index_k, index_k_pages, index_slot_mapping, 1.0))
    results = []
    for rows, pages, slots, scale in writes:
        after = pages.clone()
        for row, slot in zip(rows, slots.tolist(), strict=True):
            if slot >= 0:
                value = row.double() / scale
                if pages.dtype == torch.float8_e4m3fn:
                    value = value.clamp(-448.0, 448.0)
                after[slot // pages.shape[1], slot % pages.shape[1]] = value.to(pages.dtype)
        results.append(after)
    return tuple(results)


def place_heads(
    parts,
    counts,
    norm_weight,
    eps,
    gemma,
    rope_table,
    positions,
    k_pages,
    v_pages,
    slot_mapping,
    index_k_pages,
    index_slot_mapping,
):
    """Return queries, index queries, and the pages as they must be afterwards; the arguments stay as they are."""
    total, head_dim = parts[0], norm_weight.shape[1]
    for part in parts[1:]:
        total = total + part
    heads = list(total.to(norm_weight.dtype).view(len(positions), -1, head_dim).unbind(1))
    sizes = (counts.num_heads, counts.num_kv_heads, counts.num_index_heads, 1 if counts.num_index_heads else 0)
    groups = []
    for kind, size in enumerate(sizes):
        mine = [heads.pop(0) for _ in range(size)]
        if not mine:
            groups.append(torch.zeros(len(positions), 0, head_dim, dtype=torch.float64))
            continue
        x, kinds = torch.stack(mine, 1), torch.full((size,), kind)
        groups.append(qk_norm_rope(x, norm_weight, kinds, eps, gemma, rope_table, positions))
    q, k, index_q, index_k = groups
    # A result of the activations' dtype is what gets stored.
    k, v = k.to(norm_weight.dtype), torch.stack(heads, 1)
    if not counts.num_index_heads:
        return q, index_q, *write_kv(k, v, k_pages, v_pages, slot_mapping)
    key = index_k[:, 0].to(norm_weight.dtype)
    limit = 448.0 if k_pages.dtype == torch.float8_e4m3fn else torch.inf
    k, v, key = (value.clamp(-limit, limit) for value in (k, v, key))
    return q, index_q, *write_kv(k, v, k_pages, v_pages, slot_mapping, key, index_k_pages, index_slot_mapping)


def index_score(index_q, index_k_pages, index_page_table, req_of_token, positions):
    num_tokens, num_index_heads, _ = index_q.shape
    page_size = index_k_pages.shape[1]
    scores = torch.full((num_tokens, num_index_heads, index_page_table.shape[1]), NEG_INF, dtype=torch.float64)
    for token in range(num_tokens):
        for head in range(num_index_heads):
            query = index_q[token, head].double()
            for position in range(positions[token].item() + 1):
                index_block = position // page_size
                page = index_page_table[req_of_token[token], index_block].item()
                product = float(query @ index_k_pages[page, position % page_size].double())
                product = NAN_SCORE if math.isnan(product) else product
                scores[token, head, index_block] = max(scores[token, head, index_block].item(), product)
    return scores


def select_blocks(scores, positions, page_size, topk, num_init_blocks, num_local_blocks):
    num_tokens, num_heads, max_pages = scores.shape
    chosen = torch.full((num_tokens, num_heads, topk), -1, dtype=torch.int32)
    for token in range(num_tokens):
        own = positions[token].item() // page_size if positions[token] >= 0 else -1
        visible = range(min(own + 1, max_pages))
        for head in range(num_heads):

            def rank(index_block, row=scores[token, head], own=own):
                if index_block > own - num_local_blocks:
                    return (0, 0.0, index_block)
                if index_block < num_init_blocks:
                    return (1, 0.0, index_block)
                score = row[index_block].item()
                score = NAN_SCORE if math.isnan(score) else score
                return (2, -score if score != 0 else 0.0, index_block)

            ids = sorted(sorted(visible, key=rank)[:topk])
            chosen[token, head, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return chosen


def choose_blocks(
    index_q,
    index_k_pages,
    index_page_table,
    req_of_token,
    positions,
    topk,
    num_init_blocks,
    num_local_blocks,
):
    scores = index_score(index_q, index_k_pages, index_page_table, req_of_token, positions)
    return select_blocks(scores, positions, index_k_pages.shape[1], topk, num_init_blocks, num_local_blocks)


def attend_positions(q, k_pages, v_pages, page_row, head, seen, k_scale=1.0, v_scale=1.0):
    """Attention of one head of one token over given positions of its request; zeros if there are none."""
    head_dim, page_size = q.shape[-1], k_pages.shape[1]
    kv_head = head * k_pages.shape[2] // q.shape[0]
    slots = [(page_row[position // page_size].item(), position % page_size) for position in seen]
    query = q[head].double()
    keys = [k_pages[page, offset, kv_head].double() * k_scale for page, offset in slots]
    logits = [float(query @ key) / math.sqrt(head_dim) for key in keys]
    out = torch.zeros(head_dim, dtype=torch.float64)
    if logits:
        highest = max(logits)
        weights = [math.exp(logit - highest) for logit in logits]
        for weight, (page, offset) in zip(weights, slots, strict=True):
            out += weight / sum(weights) * v_pages[page, offset, kv_head].double() * v_scale
    return out


def dense_attend(q, k_pages, v_pages, page_table, req_of_token, positions, first_visible, k_scale=1.0, v_scale=1.0):
    out = torch.zeros(q.shape, dtype=torch.float64)
    for token in range(q.shape[0]):
        seen = range(first_visible, positions[token].item() + 1)
        for head in range(q.shape[1]):
            page_row = page_table[req_of_token[token]]
            out[token, head] = attend_positions(q[token], k_pages, v_pages, page_row, head, seen, k_scale, v_scale)
    return out


def sparse_attend(q, k_pages, v_pages, page_table, req_of_token, positions, topk_blocks, k_scale=1.0, v_scale=1.0):
    out = torch.zeros(q.shape, dtype=torch.float64)
    page_size = k_pages.shape[1]
    for token in range(q.shape[0]):
        for head in range(q.shape[1]):
            chosen = set(topk_blocks[token, head * k_pages.shape[2] // q.shape[1]].tolist()) - {-1}
            seen = [p for p in range(positions[token].item() + 1) if p // page_size in chosen]
            page_row = page_table[req_of_token[token]]
            out[token, head] = attend_positions(q[token], k_pages, v_pages, page_row, head, seen, k_scale, v_scale)
    return out


def swiglu_oai(gate_up, alpha, limit):
    half = gate_up.shape[1] // 2
    out = torch.zeros(gate_up.shape[0], half, dtype=torch.float64)
    for i, row in enumerate(gate_up.double().tolist()):
        for j in range(half):
            gate = min(row[j], limit)
            up = max(-limit, min(row[half + j], limit))
            out[i, j] = (up + 1.0) * gate / (1.0 + math.exp(-alpha * gate))
    return out


def sum_swiglu_oai(parts, alpha, limit):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return swiglu_oai(total.bfloat16(), alpha, limit)


def route(x, router_weight, router_bias, positions, topk_experts, routed_scaling_factor):
    num_tokens, num_experts = x.shape[0], router_weight.shape[0]
    ids = torch.full((num_tokens, topk_experts), -1, dtype=torch.int64)
    weights = torch.zeros(num_tokens, topk_experts, dtype=torch.float64)
    for token in range(num_tokens):
        if positions[token] < 0:
            continue
        logits = [float(x[token].double() @ router_weight[expert].double()) for expert in range(num_experts)]
        scores = [1.0 / (1.0 + math.exp(-logit)) for logit in logits]
        biased = [score + router_bias[expert].item() for expert, score in enumerate(scores)]
        order = sorted(range(num_experts), key=lambda expert: (-biased[expert], expert))[:topk_experts]
        total = sum(scores[expert] for expert in order)
        ids[token] = torch.tensor(order)
        weights[token] = torch.tensor([scores[e] / total * routed_scaling_factor for e in order], dtype=torch.float64)
    return ids, weights


def experts(x, expert_ids, expert_weights, w13, w2, alpha, limit):
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token in range(x.shape[0]):
        for expert, weight in zip(expert_ids[token].tolist(), expert_weights[token].tolist(), strict=True):
            if expert >= 0:
                gate_up = (w13[expert].double() @ x[token].double()).unsqueeze(0)
                out[token] += weight * (w2[expert].double() @ swiglu_oai(gate_up, alpha, limit)[0])
    return out


def matmul_mxfp8(x, words, scale_words, out_features):
    """Read every code out of the packed words bit by bit, by the words of the layout's docstring."""
    in_units = words.shape[1]
    # 256 inner columns at least in a split, 512 where there are enough of them for the device.
    units = plan.units_per_split(words.shape[0], in_units)
    table = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double().tolist()
    weight = torch.zeros(out_features, in_units * 64, dtype=torch.float64)
    for row in range(out_features):
        scales = (scale_words[row // 64, :, row % 64].unsqueeze(1) >> torch.arange(0, 64, 8)).flatten() & 0xFF
        low_row = row % 8 << 5 | row % 16 // 8 << 1 | row % 64 // 16 << 8
        for unit in range(in_units):
            for column in range(32):
                place = low_row | column % 2 | column % 8 // 2 << 3 | column % 16 // 8 << 2 | column // 16 << 10
                word = words[row // 64, unit, place].item() & 0xFFFF
                first = word >> 15 << 7 | word >> 4 & 0x7F
                second = (word >> 11 & 1) << 7 | (word >> 12 & 7) << 4 | word & 15
                for group, code in ((0, first), (1, second)):
                    factor = 2.0 ** (scales[2 * unit + group].item() - 127)
                    weight[row, unit * 64 + group * 32 + column] = table[code] * factor
    width = units * 64
    parts = [xs @ ws.T for xs, ws in zip(x.double().split(width, 1), weight.split(width, 1), strict=True)]
    return torch.stack(parts)


def sum_parts(parts, dtype):
    return parts.double().sum(0)


# Where the bits of a code lie for the even column of a pair, lowest first and the sign last: (word, bit) by group of
# 16 columns; an odd column has them 16 bits on, around the word. Then the lowest bit of a scale field by group of four.
NVFP4_CODE_BITS = (
    ((0, 6), (0, 7), (0, 8), (0, 15)),
    ((0, 2), (0, 3), (0, 4), (0, 11)),
    ((0, 28), (0, 29), (0, 30), (0, 5)),
    ((1, 6), (1, 7), (1, 8), (1, 15)),
    ((1, 2), (1, 3), (1, 4), (1, 11)),
    ((1, 28), (1, 29), (1, 30), (1, 5)),
    ((0, 0), (0, 1), (1, 0), (0, 9)),
    ((0, 26), (1, 25), (1, 26), (1, 1)),
)
NVFP4_SCALE_BITS = (4, 20, 28, 12)
NVFP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def nvfp4_column(packed, column):
    """One column of every tile of a packed matrix, without the factor of the matrix: [row tiles, column tiles, 128]."""
    row = torch.arange(128)
    big, warp, high, line = row // 64, row // 16 % 4, row // 8 % 2, row % 8
    group, pair = column // 16, column % 16 // 2
    place = big * 512 + warp * 128 + line * 16 + pair % 4 * 4 + pair // 4 * 2 + high
    code = 0
    for number, (word, bit) in enumerate(NVFP4_CODE_BITS[group]):
        code = code + (packed[:, :, word * 1024 + place] >> (bit + 16 * (column % 2)) % 32 & 1) * 2**number
    word = packed[:, :, 2048 + big * 128 + warp * 32 + line * 4 + high * 2 + group // 4]
    field = sum((word >> (NVFP4_SCALE_BITS[group % 4] + bit) % 32 & 1) * 2**bit for bit in range(8))
    scale = torch.where(field > 0, 2.0 ** (field // 8 - 10).double() * (1 + field % 8 / 8), 0.0)
    return (1 - 2 * (code // 8)) * torch.tensor(NVFP4_VALUES, dtype=torch.float64)[code % 8] * scale


def nvfp4_matrix(packed):
    """Weights of one packed matrix."""
    out = torch.zeros(*packed.shape[:2], 128, 128, dtype=torch.float64)
    for column in range(128):
        out[..., column] = nvfp4_column(packed, column)
    return out.transpose(1, 2).reshape(packed.shape[0] * 128, packed.shape[1] * 128)


def experts_nvfp4(x, expert_ids, expert_weights, w13, w13_scale, w2, w2_scale, alpha, limit):
    out = torch.zeros(x.shape, dtype=torch.float64)
    for expert in set(expert_ids.flatten().tolist()) - {-1}:
        first = nvfp4_matrix(w13[expert]) * w13_scale[expert].double()
        second = nvfp4_matrix(w2[expert]) * w2_scale[expert].double()
        turns = [first[start : start + 32] for start in range(0, len(first), 32)]
        first = torch.cat((*turns[0::2], *turns[1::2]))
        for token, slot in (expert_ids == expert).nonzero().tolist():
            active = swiglu_oai((first @ x[token].double()).unsqueeze(0), alpha, limit)[0]
            out[token] += expert_weights[token, slot].double() * (second @ active)
    return out
