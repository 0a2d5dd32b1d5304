"""Second implementations of the operations, each with named faults that can be switched on.

Without a fault they must be accepted by every case, with one they must be rejected by the case that exists for it:
then the tolerance proves something.
"""

from __future__ import annotations

import torch

from slipstream.kernels.linear.matmul_mxfp8 import layout, plan

NEG_INF = float("-inf")


def rms_norm(x, weight, eps, gemma, fault=None):
    wide = x if fault == "bf16_inside" else x.float()
    squares = (wide * wide).mean(1, keepdim=True)
    root = squares.sqrt() + eps if fault == "eps_on_root" else (squares + (0.0 if fault == "no_eps" else eps)).sqrt()
    add_one = {"always_one": True, "forgotten_one": False}.get(fault, gemma)
    gain = weight.to(wide.dtype) + (1.0 if add_one else 0.0) + (1.0 if fault == "one_twice" else 0.0)
    return (wide / root * gain).to(x.dtype)


def add_rms_norm(x, residual, weight, eps, gemma, fault=None):
    total = x + residual
    if fault == "norm_of_x":
        return rms_norm(x, weight, eps, gemma), total
    if fault == "old_residual":
        return rms_norm(total, weight, eps, gemma), residual
    if fault == "unrounded_sum":
        return rms_norm(x.float() + residual.float(), weight, eps, gemma).to(x.dtype), total
    return rms_norm(total, weight, eps, gemma), total


def sum_add_rms_norm(parts, extra, residual, weight, eps, gemma, fault=None):
    dtype = residual.dtype
    used = parts[1:] if fault == "no_part" else parts[:-1] if fault == "last_split_lost" else parts
    output = sum(used, torch.zeros_like(parts[0]))
    if fault == "extra_before_rounding" and extra is not None:
        output, extra = output + extra.float(), None
    if fault != "unrounded_sum":
        output = output.to(dtype)
    if extra is not None and fault != "extra_lost":
        output = output + extra * (2 if fault == "extra_twice" else 1)
    total = (output + residual).to(dtype)
    return rms_norm(output.to(dtype) if fault == "norm_of_products" else total, weight, eps, gemma), total


def qk_norm_rope(x, weight, kind_of_head, eps, gemma, rope_table, positions, fault=None):
    heads = x.float()
    if weight is not None or fault == "always_norm":
        kinds = torch.zeros_like(kind_of_head) if fault == "first_kind" else kind_of_head
        gain = weight[kinds].float() + (0.0 if fault == "forgotten_one" else 1.0) if weight is not None else 1.0
        heads = heads * torch.rsqrt(heads.square().mean(2, keepdim=True) + eps) * gain
    rotary_dim = rope_table.shape[1]
    rows = positions if fault == "minus_one_wraps" else positions.clamp_min(0)
    if fault == "rounded_positions":
        rows = rows.to(torch.bfloat16).long().clamp_max(len(rope_table) - 1)
    cosine, sine = rope_table[rows].unsqueeze(1).chunk(2, dim=2)
    if fault == "bf16_table":
        cosine, sine = cosine.bfloat16().float(), sine.bfloat16().float()
    if fault == "other_direction":
        sine = -sine
    if fault == "all_dimensions":
        repeat = x.shape[2] // rotary_dim
        cosine, sine, rotary_dim = cosine.repeat(1, 1, repeat), sine.repeat(1, 1, repeat), x.shape[2]
    turned, passed = heads[..., :rotary_dim], heads[..., rotary_dim:]
    if fault == "interleaved":
        first, second = turned[..., 0::2], turned[..., 1::2]
        pairs = (first * cosine - second * sine, second * cosine + first * sine)
        turned = torch.stack(pairs, dim=3).flatten(2)
    else:
        first, second = turned.chunk(2, dim=2)
        turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=2)
    return torch.cat((turned, passed), dim=2).to(x.dtype)


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
    fault=None,
):
    if fault == "scales_swapped":
        k_scale, v_scale = v_scale, k_scale
    elif fault == "multiplied":
        k_scale, v_scale = 1 / k_scale, 1 / v_scale
    writes = [(k / k_scale, k_pages, slot_mapping), (v / v_scale, v_pages, slot_mapping)]
    if index_k is not None:
        writes.append((index_k, index_k_pages, slot_mapping if fault == "key_slots_for_index" else index_slot_mapping))
    for rows, pages, slots in writes:
        page_size = pages.shape[1]
        if pages.dtype == torch.float8_e4m3fn:
            beyond = float("nan") if fault == "overflows" else 448.0
            rows = torch.where(rows.abs() > 448.0, beyond * rows.sign(), rows)
        kept = torch.ones_like(slots, dtype=torch.bool) if fault in ("wraps", "null_page") else slots >= 0
        slots = slots.clamp_min(0) if fault == "null_page" else slots
        flat = pages.reshape(-1, *pages.shape[2:]) if fault == "copied_pool" else None
        if flat is not None:
            flat[slots[kept]] = rows[kept].to(pages.dtype)
        elif fault == "transposed":
            pages[slots[kept] % len(pages), slots[kept] // len(pages)] = rows[kept].to(pages.dtype)
        else:
            # The floor of -1 / page_size is -1: without the mask this is the last slot of the last page.
            pages[slots[kept] // page_size, slots[kept] % page_size] = rows[kept].to(pages.dtype)


def place_heads(parts, counts, norm_weight, eps, gemma, rope_table, positions, *places, fault=None):
    k_pages, v_pages, slots, index_pages, index_slots = places
    total = parts[1:].sum(0) if fault == "no_part" else parts.sum(0)
    if fault != "norm_before_rounding":
        total = total.to(norm_weight.dtype)
    heads = total.view(len(positions), -1, norm_weight.shape[1])
    sizes = [counts.num_heads, counts.num_kv_heads, counts.num_index_heads, counts.num_index_keys]
    if fault == "index_key_first":
        heads = torch.cat((heads[:, :-3], heads[:, -3:].roll(1, 1)), 1)
    kinds = [kind for kind, size in enumerate(sizes) for _ in range(size)]
    if fault == "norm_of_index_is_norm_of_q":
        kinds = [kind % 2 for kind in kinds]
    normed = qk_norm_rope(
        heads[:, : len(kinds)], norm_weight, torch.tensor(kinds), eps, gemma, rope_table, positions
    ).to(norm_weight.dtype)
    q, k, index_q, index_k = normed.split(sizes, 1)
    v = heads[:, len(kinds) :].to(norm_weight.dtype)
    if fault == "values_normed":
        v = rms_norm(v.flatten(0, 1), norm_weight[1], eps, gemma).view(v.shape)
    own_slots = index_slots if fault == "index_slots_for_keys" else slots
    if k_pages.dtype == torch.float8_e4m3fn and fault == "not_saturated":
        v = torch.where(v.abs() > 448, torch.nan, v)
    key = index_k[:, 0] if counts.num_index_keys else None
    write_kv(k, v, k_pages, v_pages, own_slots, key, index_pages, index_slots)
    return q, index_q


def index_score(index_q, index_k_pages, index_page_table, req_of_token, positions, fault=None):
    page_size = index_k_pages.shape[1]
    scores = torch.full((*index_q.shape[:2], index_page_table.shape[1]), NEG_INF)
    for token, position in enumerate(positions.tolist()):
        keys = index_k_pages[index_page_table[req_of_token[token]].long()].flatten(0, 1)
        products = index_q[token].float() @ keys.float().T
        if fault == "rounded_products":
            products = products.bfloat16().float()
        if fault != "nan_is_largest":
            products = products.nan_to_num(nan=-1e30)
        visible = {"whole_block": -(-(position + 1) // page_size) * page_size, "own_key_lost": position}
        products[:, visible.get(fault, position + 1) :] = NEG_INF
        if fault == "padding_sees_null_page" and position < 0:
            products = (index_q[token].float() @ keys.float().T).nan_to_num(nan=0.0)
        by_block = products.view(len(products), -1, page_size)
        scores[token] = by_block.mean(2) if fault == "mean" else by_block.amax(2)
        if fault == "nan_is_largest":
            scores[token] = scores[token].nan_to_num(nan=3e38)
        if fault == "scaled":
            scores[token] *= index_q.shape[2] ** -0.5
    return scores


def select_blocks(scores, positions, page_size, topk, num_init_blocks, num_local_blocks, fault=None):
    scores = scores.clone()
    if fault == "nan_first":
        scores = scores.nan_to_num(nan=float("inf"), posinf=float("inf"), neginf=NEG_INF)
    scores = scores.nan_to_num(nan=-1e30, posinf=float("inf"), neginf=NEG_INF).double()
    chosen = torch.full((*scores.shape[:2], topk), 0 if fault == "pads_with_zero" else -1, dtype=torch.int32)
    for token, position in enumerate(positions.tolist()):
        own = -1 if position < 0 else position // page_size + (1 if fault == "future_block" else 0)
        own = min(own, scores.shape[2] - 1)
        local = range(max(0, own - num_local_blocks + 1), own + 1) if fault != "no_local" else ()
        init = range(min(num_init_blocks, own + 1)) if fault != "no_init" else ()
        forced = sorted({*local, *init})
        for head in range(scores.shape[1]):
            row = scores[token, head, : own + 1].tolist()
            if fault == "finite_constants":
                row = [1e29 if i in forced else score for i, score in enumerate(row)]
                forced = []
            sign = -1 if fault == "higher_id_wins" else 1
            zeros = torch.signbit(scores[token, head]).tolist() if fault == "signed_zeros" else [False] * len(row)
            order = sorted(range(own + 1), key=lambda i, row=row, zeros=zeros, sign=sign: (-row[i], zeros[i], sign * i))
            budget = topk if fault == "forced_outside_budget" else topk - len(forced)
            ids = sorted({*forced, *[i for i in order if i not in forced][: max(budget, 0)]})
            if fault == "descending":
                ids = ids[::-1]
            ids = ids[-topk:]
            chosen[token, head, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return chosen


def sparse_attend(
    q, k_pages, v_pages, page_table, req_of_token, positions, topk_blocks, k_scale=1.0, v_scale=1.0, fault=None
):
    num_tokens, num_heads, _ = q.shape
    page_size, num_kv_heads = k_pages.shape[1:3]
    if fault == "head_major":
        topk_blocks = topk_blocks.reshape(num_kv_heads, num_tokens, -1).transpose(0, 1)
    out = torch.zeros(q.shape, dtype=q.dtype)
    columns = torch.arange(page_table.shape[1] * page_size)
    for token in range(num_tokens):
        pages = page_table[req_of_token[token]].long()
        for head in range(num_heads):
            kv_head = head % num_kv_heads if fault == "strided_groups" else head * num_kv_heads // num_heads
            chosen = topk_blocks[token, 0 if fault == "first_head_for_all" else kv_head]
            chosen = chosen.clamp_min(0) if fault == "padding_is_block_0" else chosen
            is_seen = torch.isin(columns // page_size, chosen)
            if fault != "whole_block":
                is_seen &= columns <= positions[token]
            keys = scaled(k_pages[pages, :, kv_head].flatten(0, 1), k_scale, fault == "no_k_scale")
            values = scaled(v_pages[pages, :, kv_head].flatten(0, 1), v_scale, fault == "no_v_scale")
            out[token, head] = attend(q[token, head], keys, values, is_seen, fault)
    return out


def dense_attend(
    q, k_pages, v_pages, page_table, req_of_token, positions, first_visible, k_scale=1.0, v_scale=1.0, fault=None
):
    num_tokens, num_heads, _ = q.shape
    page_size, num_kv_heads = k_pages.shape[1:3]
    out = torch.zeros(q.shape, dtype=q.dtype)
    columns = torch.arange(page_table.shape[1] * page_size)
    first = {"first_ignored": 0, "first_by_page": first_visible // page_size * page_size}.get(fault, first_visible)
    for token in range(num_tokens):
        pages = page_table[req_of_token[token]].long()
        position = 0 if fault == "padding_sees_0" and positions[token] < 0 else positions[token]
        is_seen = (columns >= first) & ((columns < position) if fault == "own_key_lost" else (columns <= position))
        for head in range(num_heads):
            kv_head = head % num_kv_heads if fault == "strided_groups" else head * num_kv_heads // num_heads
            keys = scaled(k_pages[pages, :, kv_head].flatten(0, 1), k_scale, fault == "no_k_scale")
            values = scaled(v_pages[pages, :, kv_head].flatten(0, 1), v_scale, fault == "no_v_scale")
            out[token, head] = attend(q[token, head], keys, values, is_seen, fault)
    return out


def scaled(stored, scale, is_forgotten):
    if stored.dtype != torch.float8_e4m3fn:
        return stored
    return stored.float() * (1.0 if is_forgotten else scale)


def attend(query, keys, values, is_seen, fault):
    """One query over a contiguous stretch of which it sees a part."""
    if fault != "masked_by_score_only":
        keys, values = keys.masked_fill(~is_seen[:, None], 0.0), values.masked_fill(~is_seen[:, None], 0.0)
    logits = keys.float() @ query.float() * (1.0 if fault == "no_scale" else query.shape[0] ** -0.5)
    if fault == "rounded_probabilities":
        logits = logits.bfloat16().float()
    logits = logits.masked_fill(~is_seen, NEG_INF)
    if not is_seen.any() and fault != "nothing_is_nan":
        return torch.zeros_like(query)
    probs = logits.softmax(0)
    if fault == "rounded_probabilities":
        probs = probs.bfloat16().float()
    return (probs @ values.float()).to(query.dtype)


def swiglu_oai(gate_up, alpha, limit, fault=None):
    wide = gate_up if fault == "bf16_inside" else gate_up.float()
    gate, up = (wide[:, 0::2], wide[:, 1::2]) if fault == "interleaved" else wide.chunk(2, dim=1)
    if fault == "swapped":
        gate, up = up, gate
    gate = gate.clamp(-limit, limit) if fault == "gate_clamped_below" else gate.clamp_max(limit)
    up = up if fault == "up_not_clamped" else up.clamp(-limit, limit)
    slope = {"alpha_is_one": 1.0, "alpha_is_fixed": 1.702}.get(fault, alpha)
    gated = gate * torch.sigmoid(gate * slope)
    return ((up + (0.0 if fault == "no_one" else 1.0)) * gated).to(gate_up.dtype)


def sum_swiglu_oai(parts, alpha, limit, fault=None):
    if fault == "parts_clamped":
        parts = torch.cat((parts[..., :20].clamp_max(limit), parts[..., 20:].clamp(-limit, limit)), 2)
    total = (parts[1:] if fault == "part_lost" else parts).sum(0)
    if fault != "not_rounded":
        total = total.bfloat16().float()
    return swiglu_oai(total, alpha, limit, "interleaved" if fault == "interleaved" else None).bfloat16()


def route(x, router_weight, router_bias, positions, topk_experts, routed_scaling_factor, fault=None):
    logits = x.float() @ router_weight.T
    if fault == "rounded_logits":
        logits = (x.bfloat16() @ router_weight.bfloat16().T).float()
    scores = logits.softmax(1) if fault == "softmax" else torch.sigmoid(logits)
    biased = scores if fault == "no_bias" else scores + router_bias
    if fault == "higher_id_wins":
        ids = len(router_weight) - 1 - torch.sort(biased.flip(1), dim=1, descending=True, stable=True).indices
    else:
        ids = torch.sort(biased, dim=1, descending=True, stable=True).indices
    ids = ids[:, :topk_experts]
    weights = (biased if fault == "biased_weights" else scores).gather(1, ids)
    if fault != "not_normalised":
        weights = weights / weights.sum(1, keepdim=True)
    if fault != "not_scaled":
        weights = weights * routed_scaling_factor
    if fault != "padding_routed":
        ids, weights = ids.masked_fill(positions[:, None] < 0, -1), weights.masked_fill(positions[:, None] < 0, 0.0)
    return ids, weights


def experts(x, expert_ids, expert_weights, w13, w2, alpha, limit, fault=None):
    out = torch.zeros(x.shape, dtype=x.dtype if fault == "bf16_sum" else torch.float32)
    for slot in range(expert_ids.shape[1]):
        for token in range(len(x)):
            expert = int(expert_ids[token, slot])
            if expert < 0 and fault != "padding_is_last":
                continue
            gate_up = (w13[expert] @ x[token]).unsqueeze(0)
            if fault == "plain_silu":
                gate, up = gate_up.float().chunk(2, dim=1)
                hidden = (torch.nn.functional.silu(gate) * up).to(x.dtype)
            else:
                hidden = swiglu_oai(gate_up, alpha, limit, fault)
            weight = float(expert_weights[token, 0 if fault == "first_weight" else slot])
            weight = 1.0 if fault == "padding_is_last" and expert < 0 else weight
            target = 0 if fault == "first_token" else token
            out[target] += (w2[expert] @ hidden[0]).to(out.dtype) * weight
    return out.to(x.dtype)


def matmul_mxfp8(x, words, scale_words, out_features, fault=None):
    codes, scales = layout.unpack(words, scale_words, out_features)
    if fault == "neighbour_scale":
        scales = scales.roll(1, 1)
    elif fault == "row_scale":
        scales = scales[:, :1].expand_as(scales)
    elif fault == "halves_swapped":
        codes = codes.view(torch.uint8).view(out_features, -1, 2, 32).flip(2).flatten(1).view(torch.float8_e4m3fn)
    weight = codes.float() * 2.0 ** (scales.float() - 127).repeat_interleave(32, dim=1)
    if fault == "small_codes_lost":
        weight = weight * (codes.float().abs() >= 2.0**-6)
    elif fault == "sign_lost":
        weight = weight.abs()
    elif fault == "rounded_weights":
        weight = (weight.float() * 1.01).bfloat16().float()
    units = plan.units_per_split(*words.shape[:2])
    width = 32 * units if fault == "narrow_splits" else 64 * units
    parts = [xs @ ws.T for xs, ws in zip(x.float().split(width, 1), weight.split(width, 1), strict=True)]
    if fault == "narrow_splits":
        parts = parts[: len(parts) // 2]
    total = torch.stack(parts)
    if fault == "first_tile_only":
        total[:, 16:] = 0.0
    return total.bfloat16().float() if fault == "rounded_parts" else total


def sum_parts(parts, dtype, fault=None):
    if fault == "first_lost":
        parts = torch.cat((torch.zeros_like(parts[:1]), parts[1:]))
    elif fault == "backwards":
        parts = parts.flip(0)
    total = parts[0].to(dtype) if fault == "rounded_between" else parts[0]
    for part in parts[1:]:
        total = (total + part).to(dtype) if fault == "rounded_between" else total + part
    return (total + 1e-3 if fault == "shifted" else total).to(dtype)
