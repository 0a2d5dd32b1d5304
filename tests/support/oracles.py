"""Operations written out rule by rule: Python loops over float64 numbers. Slow, and sharing no code with references.

Every oracle takes the keyword arguments of the operation's contract and returns float64 or integer tensors.
"""

from __future__ import annotations

import math

import torch

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


def write_kv(k, v, k_pages, v_pages, slot_mapping, index_k=None, index_k_pages=None, index_slot_mapping=None):
    """Return the pages as they must be afterwards; the arguments stay as they are."""
    writes = [(k, k_pages, slot_mapping), (v, v_pages, slot_mapping)]
    if index_k is not None:
        writes.append((index_k, index_k_pages, index_slot_mapping))
    results = []
    for rows, pages, slots in writes:
        after = pages.clone()
        for row, slot in zip(rows, slots.tolist(), strict=True):
            if slot >= 0:
                after[slot // pages.shape[1], slot % pages.shape[1]] = row.to(pages.dtype)
        results.append(after)
    return tuple(results)


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


def attend_positions(q, k_pages, v_pages, page_row, head, seen):
    """Attention of one head of one token over given positions of its request; zeros if there are none."""
    head_dim, page_size = q.shape[-1], k_pages.shape[1]
    kv_head = head * k_pages.shape[2] // q.shape[0]
    slots = [(page_row[position // page_size].item(), position % page_size) for position in seen]
    query = q[head].double()
    logits = [float(query @ k_pages[page, offset, kv_head].double()) / math.sqrt(head_dim) for page, offset in slots]
    out = torch.zeros(head_dim, dtype=torch.float64)
    if logits:
        highest = max(logits)
        weights = [math.exp(logit - highest) for logit in logits]
        for weight, (page, offset) in zip(weights, slots, strict=True):
            out += weight / sum(weights) * v_pages[page, offset, kv_head].double()
    return out


def dense_attend(q, k_pages, v_pages, page_table, req_of_token, positions, first_visible):
    out = torch.zeros(q.shape, dtype=torch.float64)
    for token in range(q.shape[0]):
        seen = range(first_visible, positions[token].item() + 1)
        for head in range(q.shape[1]):
            page_row = page_table[req_of_token[token]]
            out[token, head] = attend_positions(q[token], k_pages, v_pages, page_row, head, seen)
    return out


def sparse_attend(q, k_pages, v_pages, page_table, req_of_token, positions, topk_blocks):
    out = torch.zeros(q.shape, dtype=torch.float64)
    page_size = k_pages.shape[1]
    for token in range(q.shape[0]):
        for head in range(q.shape[1]):
            chosen = set(topk_blocks[token, head * k_pages.shape[2] // q.shape[1]].tolist()) - {-1}
            seen = [p for p in range(positions[token].item() + 1) if p // page_size in chosen]
            page_row = page_table[req_of_token[token]]
            out[token, head] = attend_positions(q[token], k_pages, v_pages, page_row, head, seen)
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
