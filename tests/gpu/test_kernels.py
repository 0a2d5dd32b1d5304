"""Triton kernels on a GPU: every named case, then the real model's geometry against the CPU references."""

from __future__ import annotations

import inspect

import pytest
import torch

from slipstream.kernels.case import EXACT, Case, Tolerance
from support.kernel_cases import as_tuple, module_of, reference_of, short_name
from support.paged_world import make_world, padded, tokens_of, with_identity_pages, with_shuffled_pages
from support.triton_cases import PAIRS, check_triton_case

HALF = Tolerance(2e-4, 1.01 * 2.0**-7, "both sides are rounded to bfloat16: sums in another order may round apart")
REAL = {"page_size": 128, "heads": (16, 1, 128), "dtype": torch.bfloat16}
HALF_MODEL = {"page_size": 128, "heads": (32, 2, 128), "dtype": torch.bfloat16}
TOPK = 16


def implementation(operation):
    return getattr(module_of(operation, "triton_impl"), short_name(operation))


def moved(world):
    return {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in world.items()}


def call(function, world, **more):
    given = {**world, "index_page_table": world["page_table"], **more}
    with torch.inference_mode():
        return function(**{name: given[name] for name in inspect.signature(function).parameters if name in given})


def world_of(seq_lens, query_lens, geometry=REAL, **more):
    max_pages = -(-max(seq_lens) // geometry["page_size"]) + 3
    return make_world(seq_lens, query_lens, max_pages=max_pages, **geometry, **more)


@pytest.mark.parametrize(("operation", "case_name"), PAIRS)
def test_case_is_within_its_tolerance(operation, case_name):
    check_triton_case(operation, case_name, "cuda")


@pytest.mark.parametrize("geometry", [REAL, HALF_MODEL], ids=["tp4", "tp2"])
@pytest.mark.parametrize("seq_lens", [(300, 5, 129), (2048, 2049, 2200), (9000,)], ids=["short", "border", "long"])
def test_sparse_attention_of_the_real_geometry(seq_lens, geometry):
    check_sparse(seq_lens, geometry)


def test_ladders_behind_three_hundred_thousand_tokens():
    """2,344 blocks, of which 16 are chosen; the dense layer sees all of them."""
    world = check_sparse((300_000,), REAL)
    mixed = call(implementation("attention/dense_attend"), moved(world), first_visible=0)
    expected = call(reference_of("attention/dense_attend"), world, first_visible=0)
    assert HALF.accepts(mixed.cpu(), expected)


def check_sparse(seq_lens, geometry):
    """Scores, choice and attention against the references; return the batch."""
    world = world_of(seq_lens, (4,) * len(seq_lens), geometry, num_padding=2)
    scores = call(reference_of("attention/index_score"), world)
    chosen = call(reference_of("attention/select_blocks"), world, scores=scores, **choice(128))
    on_gpu = moved(world)
    own_scores = call(implementation("attention/index_score"), on_gpu)
    assert Tolerance(3e-4, 1e-5, "").accepts(own_scores.cpu().nan_to_num(neginf=-7e7), scores.nan_to_num(neginf=-7e7))
    # The same scores give the same blocks, bit for bit; own scores may differ by a rounding at a near tie.
    again = call(implementation("attention/select_blocks"), on_gpu, scores=scores.cuda(), **choice(128))
    assert torch.equal(again.cpu(), chosen)
    mixed = call(implementation("attention/sparse_attend"), on_gpu, topk_blocks=chosen.cuda())
    expected = call(reference_of("attention/sparse_attend"), world, topk_blocks=chosen)
    assert HALF.accepts(mixed.cpu(), expected)
    return world


def choice(page_size):
    return {"page_size": page_size, "topk": TOPK, "num_init_blocks": 0, "num_local_blocks": 1}


@pytest.mark.parametrize("first_visible", [0, 1])
@pytest.mark.parametrize("query_lens", [(4, 4, 4), (1, 700, 3)], ids=["ladders", "chunk"])
def test_dense_attention_of_the_real_geometry(query_lens, first_visible):
    world = world_of((2200, 900, 5), query_lens, num_padding=1)
    mixed = call(implementation("attention/dense_attend"), moved(world), first_visible=first_visible)
    expected = call(reference_of("attention/dense_attend"), world, first_visible=first_visible)
    assert HALF.accepts(mixed.cpu(), expected)


@pytest.mark.parametrize("operation", ["attention/index_score", "attention/sparse_attend", "attention/dense_attend"])
def test_a_row_does_not_depend_on_its_batch_or_its_pages(operation):
    """Bit for bit: alone, in a batch of 64, padded, shuffled, contiguous."""
    seq_lens = tuple(130 + 37 * place for place in range(16))
    world = world_of(seq_lens, (4,) * 16)
    world["topk_blocks"] = call(
        reference_of("attention/select_blocks"),
        world,
        scores=torch.randn(64, 1, world["page_table"].shape[1], generator=torch.Generator().manual_seed(3)),
        **choice(128),
    )
    function = implementation(operation)

    def run(batch):
        return call(function, moved(batch), first_visible=1).cpu()

    whole = run(world)
    assert torch.equal(run(with_shuffled_pages(world, 5)), whole)
    assert torch.equal(run(with_identity_pages(world)), whole)
    for tokens in (torch.tensor([5]), torch.arange(40, 44), torch.arange(63, -1, -1)):
        assert torch.equal(run(tokens_of(world, tokens)), whole[tokens])
    wider = (
        padded({**world, "topk_blocks": world["topk_blocks"]}, 3) if operation != "attention/sparse_attend" else None
    )
    if wider is not None:
        assert torch.equal(run(wider)[:64], whole)


def test_a_page_far_behind_is_addressed_in_64_bits():
    """Elements past 2^31: a 32-bit offset wraps into another request's keys, or outside."""
    num_pages, page_size, dim = 36_000, 128, 128
    k_pages = torch.empty((num_pages, page_size, 4, dim), dtype=torch.bfloat16, device="cuda")
    v_pages = torch.empty_like(k_pages)
    assert k_pages[:-3].numel() > 2**31
    world = world_of((300,), (4,), {"page_size": 128, "heads": (64, 4, 128), "dtype": torch.bfloat16})
    far = moved(world)
    table = torch.zeros_like(far["page_table"])
    for column in range(3):
        page = num_pages - 1 - column
        k_pages[page], v_pages[page] = (far[name][world["page_table"][0, column]] for name in ("k_pages", "v_pages"))
        table[0, column] = page
    far |= {"page_table": table, "k_pages": k_pages, "v_pages": v_pages}
    mixed = call(implementation("attention/dense_attend"), far, first_visible=0)
    assert torch.equal(mixed, call(implementation("attention/dense_attend"), moved(world), first_visible=0))
    blocks = torch.arange(3, dtype=torch.int32, device="cuda").expand(4, 4, 3).contiguous()
    mixed = call(implementation("attention/sparse_attend"), far, topk_blocks=blocks)
    assert torch.equal(mixed, call(implementation("attention/sparse_attend"), moved(world), topk_blocks=blocks))
    slots = torch.tensor([(num_pages - 4) * page_size + 5], device="cuda")
    k = torch.randn(1, 4, dim, device="cuda", dtype=torch.bfloat16)
    implementation("cache/write_kv")(k, -k, k_pages, v_pages, slots, None, None, None)
    assert torch.equal(k_pages[num_pages - 4, 5], k[0])
    assert torch.equal(v_pages[num_pages - 4, 5], -k[0])


def test_an_index_page_far_behind_is_addressed_in_64_bits():
    """As above for the narrower pages of index keys, of which more are needed."""
    num_pages = 140_000
    index_k_pages = torch.empty((num_pages, 128, 128), dtype=torch.bfloat16, device="cuda")
    assert index_k_pages[:-3].numel() > 2**31
    world = world_of((300,), (4,), {"page_size": 128, "heads": (64, 4, 128), "dtype": torch.bfloat16})
    near = moved(world)
    table = torch.zeros_like(near["page_table"])
    for column in range(3):
        index_k_pages[num_pages - 1 - column] = near["index_k_pages"][world["page_table"][0, column]]
        table[0, column] = num_pages - 1 - column
    score = implementation("attention/index_score")
    found = call(score, {**near, "index_k_pages": index_k_pages}, index_page_table=table)
    assert torch.equal(found, call(score, near))


@pytest.mark.parametrize("num_tokens", [1, 4, 64, 700])
def test_experts_and_router_of_the_real_geometry(num_tokens):
    generator = torch.Generator(device="cuda").manual_seed(num_tokens)

    def draw(*shape, scale=1.0):
        return torch.randn(shape, generator=generator, device="cuda") * scale

    hidden, width, num_experts = 6144, 384, 128
    x = draw(num_tokens, hidden).bfloat16()
    positions = torch.arange(num_tokens, device="cuda")
    positions[num_tokens - 1] = -1 if num_tokens > 1 else 0
    route_inputs = (x, draw(num_experts, hidden, scale=0.02), draw(num_experts, scale=0.1), positions, 4, 2.0)
    ids, weights = implementation("moe/route")(*route_inputs)
    wanted_ids, wanted_weights = reference_of("moe/route")(*route_inputs)
    assert (ids != wanted_ids).float().mean() < 2e-3, "more than near ties"
    same = (ids == wanted_ids).all(1)
    assert torch.allclose(weights[same], wanted_weights[same], atol=2e-5)
    w13, w2 = draw(num_experts, 2 * width, hidden, scale=0.02).bfloat16(), draw(num_experts, hidden, width).bfloat16()
    arguments = (x, ids, weights, w13, w2, 1.702, 7.0)
    mixed = implementation("moe/experts")(*arguments)
    expected = reference_of("moe/experts")(
        *[part.cpu() if isinstance(part, torch.Tensor) else part for part in arguments]
    )
    error = (mixed.cpu().float() - expected.float()).norm() / expected.float().norm()
    assert error < 4e-3, "bfloat16 roundings of three products and a sum"
    alone = implementation("moe/experts")(x[:1], ids[:1], weights[:1], w13, w2, 1.702, 7.0)
    assert num_tokens > 256 or torch.equal(alone[0], mixed[0]), "a ladder row depends on its batch"


def test_draws_of_the_real_vocabulary_equal_the_host_s():
    vocab_size = 200_064
    logits = torch.randn(8, vocab_size, generator=torch.Generator().manual_seed(0)) * 4
    temperature = torch.tensor([0.0, 0.7, 1.0, 1.3, 0.2, 1.0, 0.0, 2.0])
    seeds = torch.tensor([1, -5, 2**62, 7, 8, 9, 10, 11])
    positions = torch.arange(100, 108)
    wanted = reference_of("sampling/draw_tokens")(logits, temperature, seeds, positions, None, True)
    given = [value.cuda() for value in (logits, temperature, seeds, positions)]
    assert torch.equal(implementation("sampling/draw_tokens")(*given, None, True).cpu(), wanted)


def mixed_filters(num_rows, vocab_size):
    """Rows of every kind: ties, flat, cold, greedy, NaN, few tokens left; each with filters of its own."""
    generator = torch.Generator().manual_seed(num_rows)
    logits = torch.randn(num_rows, vocab_size, generator=generator) * 3
    logits[1::4] = (logits[1::4] * 2).round() / 2
    logits[2::8, 7:] = -torch.inf
    logits[5::16, 3] = torch.nan
    pick = torch.arange(num_rows)
    return {
        "logits": logits,
        "temperature": torch.tensor([1.0, 0.7, 1.3, 30.0, 0.0, 0.05, 1.0])[pick % 7],
        "top_k": torch.tensor([0, 50, 1, 4097, 199_999, 0, 20, 300_000, 2], dtype=torch.int32)[pick % 9],
        "top_p": torch.tensor([0.95, 1.0, 0.5, 0.999, 1e-9])[pick % 5],
        "min_p": torch.tensor([0.0, 0.0, 0.02, 1e-7, 1.0, 0.0])[pick % 6],
    }


@pytest.mark.parametrize("num_rows", [1, 8, 64])
def test_filters_of_the_real_vocabulary_equal_the_host_s(num_rows):
    given = mixed_filters(num_rows, 200_064)
    wanted = reference_of("sampling/filter_logits")(**given)
    on_gpu = moved(given)
    found = implementation("sampling/filter_logits")(**on_gpu)
    assert torch.equal(found.cpu().nan_to_num(7e7), wanted.nan_to_num(7e7))
    alone = implementation("sampling/filter_logits")(**{name: value[-1:] for name, value in on_gpu.items()})
    assert torch.equal(alone[0], found[-1]), "a row depends on its batch"


@pytest.mark.parametrize("has_probs", [True, False])
def test_rejection_of_the_real_vocabulary_equals_the_host_s(has_probs):
    generator = torch.Generator().manual_seed(3)
    num_reqs, query_len, vocab_size = 16, 4, 200_064
    logits = torch.randn(num_reqs, query_len, vocab_size, generator=generator) * 4
    guesses = logits[:, :-1] + torch.randn(num_reqs, query_len - 1, vocab_size, generator=generator)
    probs = torch.softmax(guesses, -1)
    logits[3, 1] = torch.nan
    logits[4, :, 50:] = -torch.inf
    drafts = torch.multinomial(probs.flatten(0, 1), 1, generator=generator).view(num_reqs, query_len - 1)
    drafts[::2, 0] = guesses[::2, 0].argmax(-1)
    # Likely by the target as well, so that some stay even when q is a point.
    logits[::2, 0] = logits[::2, 0].scatter_add(1, drafts[::2, :1], torch.full((num_reqs // 2, 1), 8.0))
    drafts[5, 1] = -1
    given = {
        "logits": logits,
        "temperature": torch.tensor([1.0, 0.6, 1.5, 0.0]).repeat(num_reqs // 4),
        "draws": torch.randint(0, vocab_size, (num_reqs, query_len), generator=generator),
        "draft_tokens": drafts,
        "draft_probs": probs if has_probs else None,
        "seed": torch.arange(num_reqs) * 2**40 - 5,
        "base_positions": torch.arange(num_reqs) * 1000,
    }
    wanted = reference_of("sampling/verify_rejection")(**given)
    assert len(set(wanted[0].tolist())) > 1, "drafts must stay in some places and not in others"
    found = implementation("sampling/verify_rejection")(**moved(given))
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.cpu(), other)


def test_norms_of_the_real_width_do_not_depend_on_the_batch():
    x = torch.randn(65, 6144, device="cuda").bfloat16()
    weight = torch.randn(6144, device="cuda").bfloat16()
    whole = implementation("norm/rms_norm")(x, weight, 1e-6, True)
    expected = reference_of("norm/rms_norm")(x.cpu(), weight.cpu(), 1e-6, True)
    assert HALF.accepts(whole.cpu(), expected)
    assert torch.equal(implementation("norm/rms_norm")(x[40:41], weight, 1e-6, True), whole[40:41])


def test_a_case_can_fail():
    """The comparison itself: a result that is off by one rounding too many is refused."""
    case = Case("x", "", 0, torch.float32, EXACT, {})
    assert not case.tolerance.accepts(torch.ones(2) + 1e-6, torch.ones(2))
    assert as_tuple(torch.ones(1))[0].shape == (1,)
