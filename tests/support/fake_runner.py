"""A runner of integers: executes step plans and raises on everything a real device would only corrupt.

It keeps row state, page tables and page contents. A stored token is the digest of its whole prefix, so a page of
another history is noticed even when its tokens agree. The "model" is a pure function of seed and prefix digest; which
drafts are accepted is scripted. `submit` executes in order, as a stream does; `collect` hands results over later.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from slipstream.cache.logical.manager import CacheManager
from slipstream.cache.logical.pages import GroupSpec
from slipstream.scheduler.budget import SchedulerConfig
from slipstream.scheduler.lifecycle import Decoding
from slipstream.scheduler.scheduler import Scheduler
from slipstream.wire.ids import NULL_PAGE
from slipstream.wire.messages import RequestOutput
from slipstream.wire.request import Request
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import PrefillChunk, RowStart, StepPlan, StepResult, TokenRun

VOCAB_SIZE = 97
_ROOT_DIGEST = 17
_MASK = (1 << 61) - 1

Accept = Callable[[int, int, int], tuple[int, int]]
"""(step_id, row, draft_len) -> (num_draft_tokens, num_accepted)."""


class DeviceFault(AssertionError):
    """A plan that would make a real device read or write the wrong memory."""


def extend_digest(digest: int, token: int) -> int:
    """Return the digest of a prefix with one more token."""
    return (digest * 1_000_003 + token * 7_919 + 11) & _MASK


def prefix_digest(tokens: Iterable[int]) -> int:
    """Return the digest of a whole prefix."""
    digest = _ROOT_DIGEST
    for token in tokens:
        digest = extend_digest(digest, token)
    return digest


def model_token(seed: int, digest: int) -> int:
    """Return the next token after a prefix: what a draw with noise keyed by seed and position would give."""
    return ((digest ^ (seed * 2_654_435_761)) * 40_503 >> 7) % VOCAB_SIZE


def expected_stream(request: Request) -> tuple[tuple[int, ...], str]:
    """Return the tokens and finish reason of a request, computed alone and one by one."""
    digest, tokens = prefix_digest(request.prompt_token_ids), []
    while True:
        token = model_token(request.seed, digest)
        digest = extend_digest(digest, token)
        tokens.append(token)
        if token in request.stop_token_ids:
            return tuple(tokens), "stop"
        if len(request.prompt_token_ids) + len(tokens) == request.max_seq_len:
            return tuple(tokens), "length"


def accept_randomly(seed: int) -> Accept:
    """Return a script that proposes and accepts a random number of drafts."""
    rng = random.Random(seed)

    def accept(step_id: int, row: int, draft_len: int) -> tuple[int, int]:
        num_drafts = draft_len if rng.random() < 0.8 else rng.randint(0, draft_len)
        return num_drafts, rng.randint(0, num_drafts)

    return accept


def accept_pattern(counts: Sequence[int]) -> Accept:
    """Return a script that accepts counts[i] drafts in a row's i-th ladder, again and again."""
    num_seen: dict[int, int] = defaultdict(int)

    def accept(step_id: int, row: int, draft_len: int) -> tuple[int, int]:
        count = counts[num_seen[row] % len(counts)]
        num_seen[row] += 1
        return draft_len, min(count, draft_len)

    return accept


@dataclass
class _Row:
    start: RowStart
    tokens: list[int]
    digests: list[int]  # [len(tokens)], of the prefix that ends with each token
    num_computed: int
    num_hit_pages: int
    is_decoding: bool = False

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.digests.append(extend_digest(self.digests[-1], token))


@dataclass
class _Pending:
    step_id: int
    rows: frozenset[int]
    pages: frozenset[tuple[str, int]]
    result: StepResult


@dataclass
class FakeRunner:
    """Executes plans; see the module.

    Args:
        groups: the cache groups; the draft layer lives in the first.
        page_size: tokens per page.
        max_rows: rows of state.
        max_model_len: gives the width of page tables.
        accept: the acceptance script.
        broken_seeds: requests whose first ladder (or first token, with none) is not finite.
    """

    groups: Sequence[GroupSpec]
    page_size: int
    max_rows: int
    max_model_len: int
    accept: Accept = field(default_factory=lambda: accept_randomly(0))
    broken_seeds: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.max_pages = -(-self.max_model_len // self.page_size)
        self.tables = {
            group.name: [[NULL_PAGE] * self.max_pages for _ in range(self.max_rows)] for group in self.groups
        }
        self.contents = {group.name: [[None] * self.page_size for _ in range(group.num_pages)] for group in self.groups}
        self.draft_contents = [[None] * self.page_size for _ in range(self.groups[0].num_pages)]
        self.rows: dict[int, _Row] = {}
        self.users: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)  # page -> (row, entry)
        self.pending: deque[_Pending] = deque()
        self.next_step = 0
        self.is_drafting = False
        self.plans: list[StepPlan] = []

    # -- the runner's interface

    def submit(self, plan: StepPlan) -> int:
        """Execute a plan; its result waits for collect."""
        self._expect(plan.step_id == self.next_step, f"step {plan.step_id} submitted, {self.next_step} is next")
        self.next_step += 1
        self.is_drafting = plan.draft_len > 0
        self.plans.append(plan)
        chunk_rows = [chunk.row for chunk in plan.chunks]
        self._expect(list(plan.decode_rows) == sorted(set(plan.decode_rows)), "decode rows not ascending and unique")
        self._expect(
            len(set(chunk_rows)) == len(chunk_rows) and not set(chunk_rows) & set(plan.decode_rows),
            "a row appears twice in one plan",
        )
        for start in plan.starts:
            self._start(start)
        self._edit_tables(plan)
        for start in plan.starts:
            self._check_hit(start)
        runs = [self._verify(plan, row) for row in plan.decode_rows]
        runs += [run for chunk in plan.chunks if (run := self._prefill(plan, chunk)) is not None]
        rows = frozenset({*plan.decode_rows, *chunk_rows, *(start.row for start in plan.starts)})
        pages = frozenset(
            (name, page) for name, tables in self.tables.items() for row in rows for page in tables[row] if page
        )
        self.pending.append(_Pending(plan.step_id, rows, pages, StepResult(step_id=plan.step_id, runs=tuple(runs))))
        return plan.step_id

    def collect(self, step_id: int | None = None) -> StepResult:
        """Return the oldest result; step_id, if given, must be that step's."""
        pending = self.pending.popleft()
        self._expect(step_id in (None, pending.step_id), f"step {step_id} collected before {pending.step_id}")
        return pending.result

    def collect_ladders(self, step_id: int) -> tuple[StepResult, int]:
        """Return the decode rows' runs of the oldest step, and its id; the step stays in flight."""
        pending = self.pending[0]
        self._expect(step_id == pending.step_id, f"ladders of step {step_id} collected before {pending.step_id}")
        num_ladders = len(self.plans[step_id].decode_rows)
        runs = pending.result.runs
        pending.result = StepResult(step_id=step_id, runs=runs[num_ladders:])
        return StepResult(step_id=step_id, runs=runs[:num_ladders]), step_id

    # -- parts of a step

    def _start(self, start: RowStart) -> None:
        self._expect(0 <= start.row < self.max_rows, f"row {start.row} does not exist")
        self._expect(
            not any(start.row in pending.rows for pending in self.pending), f"row {start.row} reused while in flight"
        )
        self._expect(
            start.num_computed_tokens % self.page_size == 0 and start.num_computed_tokens < len(start.token_ids),
            f"a hit of {start.num_computed_tokens} tokens for a prompt of {len(start.token_ids)}",
        )
        self._expect(len(start.token_ids) < start.max_seq_len <= self.max_model_len, "limits do not fit")
        for name in self.tables:
            for entry in range(self.max_pages):
                self._set_entry(name, start.row, entry, NULL_PAGE)
        digests, digest = [], _ROOT_DIGEST
        for token in start.token_ids:
            digest = extend_digest(digest, token)
            digests.append(digest)
        self.rows[start.row] = _Row(
            start,
            list(start.token_ids),
            digests,
            start.num_computed_tokens,
            start.num_computed_tokens // self.page_size,
        )

    def _set_entry(self, name: str, row: int, entry: int, page: int) -> None:
        old = self.tables[name][row][entry]
        if old:
            self.users[name, old].discard((row, entry))
        self.tables[name][row][entry] = page
        if page:
            self.users[name, page].add((row, entry))

    def _edit_tables(self, plan: StepPlan) -> None:
        sizes = {group.name: group.num_pages for group in self.groups}
        touched: set[tuple[str, int]] = set()
        for edit in plan.page_edits:
            self._expect(edit.group in sizes, f"unknown group {edit.group}")
            self._expect(edit.first >= 0 and edit.first + len(edit.pages) <= self.max_pages, "edit past the table")
            for entry, page in enumerate(edit.pages, edit.first):
                self._expect(0 <= page < sizes[edit.group], f"page {page} does not exist")
                is_new = self.tables[edit.group][edit.row][entry] != page
                self._set_entry(edit.group, edit.row, entry, page)
                if page and is_new:
                    touched.add((edit.group, page))
        for name, page in touched:
            writers = 0
            for row, entry in self.users[name, page]:
                owner = self.rows.get(row)
                self._expect(owner is not None, f"page {page} given to row {row}, which never started")
                is_reader = entry < owner.num_hit_pages
                writers += not is_reader and owner.num_computed < (entry + 1) * self.page_size
                if not is_reader and len(self.users[name, page]) == 1:
                    self._expect(
                        not any((name, page) in pending.pages for pending in self.pending),
                        f"page {page} of {name} given to row {row} while a step in flight may write it",
                    )
            self._expect(
                not writers or len(self.users[name, page]) == 1,
                f"page {page} of {name} is in several tables and still written: {self.users[name, page]}",
            )
            owners = [(row, entry) for row, entry in self.users[name, page] if entry >= self.rows[row].num_hit_pages]
            self._expect(len(owners) <= 1, f"page {page} of {name} has owners {owners}")
            self._expect(len({entry for _, entry in self.users[name, page]}) == 1, "one page at two entries")

    def _check_hit(self, start: RowStart) -> None:
        if start.num_computed_tokens:
            self._read(start.row, start.num_computed_tokens)

    def _page_at(self, name: str, row: int, position: int) -> int:
        page = self.tables[name][row][position // self.page_size]
        self._expect(page != NULL_PAGE, f"row {row}, position {position}: no page in {name}")
        return page

    def _write(self, name: str, contents: list[list[int | None]], row: int, position: int, digest: int) -> None:
        if position >= self.rows[row].start.max_seq_len:
            return
        page = self._page_at(name, row, position)
        users = self.users[name, page]
        self._expect(
            users == {(row, position // self.page_size)}, f"row {row} writes page {page} of {name}, used by {users}"
        )
        contents[page][position % self.page_size] = digest

    def _write_target(self, row: int, position: int, digest: int) -> None:
        for name, contents in self.contents.items():
            self._write(name, contents, row, position, digest)

    def _write_draft(self, row: int, position: int, digest: int) -> None:
        if position:  # the first token has no draft row
            self._write(self.groups[0].name, self.draft_contents, row, position, digest)

    def _read(self, row: int, num_tokens: int, extra: Sequence[int] = ()) -> None:
        """Check what attention over the first num_tokens tokens would see: `extra` follows the known digests."""
        state = self.rows[row]
        expected = [*state.digests[: num_tokens - len(extra)], *extra]
        for name, contents in self.contents.items():
            for position in range(0, num_tokens, self.page_size):
                page = self._page_at(name, row, position)
                want = expected[position : position + self.page_size]
                self._expect(
                    contents[page][: len(want)] == want, f"row {row} reads foreign content in page {page} of {name}"
                )
        # The draft layer reads by token, from the second token on, and never past known tokens.
        num_known = min(num_tokens - len(extra), state.num_computed) if self.is_drafting else 0
        for position in range(1, num_known):
            page = self._page_at(self.groups[0].name, row, position)
            found = self.draft_contents[page][position % self.page_size]
            self._expect(found == state.digests[position], f"row {row}: draft row of position {position} is foreign")

    def _propose(self, row: int, draft_len: int) -> None:
        """Write the draft rows of a chain of draft_len drafts after the row's last token."""
        state = self.rows[row]
        for position in range(state.num_computed + 1, state.num_computed + draft_len):
            self._write_draft(row, position, -position)

    def _verify(self, plan: StepPlan, row: int) -> TokenRun:
        state = self.rows[row]
        self._expect(state.is_decoding, f"row {row} decodes before its last chunk")
        draft_len, start = plan.draft_len, state.num_computed
        limit = state.start.max_seq_len
        num_drafts, num_accepted = self.accept(plan.step_id, row, draft_len)
        digests, emitted, digest = [], [], state.digests[-1]
        for number in range(draft_len + 1):
            token = model_token(state.start.seed, digest)
            if number <= num_accepted:
                emitted.append(token)
            drafted = token if number < num_accepted else (token + 1) % VOCAB_SIZE
            digest = extend_digest(digest, drafted)
            digests.append(digest)
        ladder = [state.digests[-1], *digests[:draft_len]]
        for number, entry in enumerate(ladder):
            self._write_target(row, start + number, entry)
        visible = ladder[: max(limit - start, 0)]
        if visible:
            self._read(row, start + len(visible), visible)
        for token in emitted:
            state.append(token)
        state.num_computed += len(emitted)
        if draft_len:
            for position in range(start + 1, state.num_computed + 1):
                self._write_draft(row, position, state.digests[position])
            self._propose(row, draft_len)
        return self._run(state, row, emitted, num_drafts, num_accepted)

    def _prefill(self, plan: StepPlan, chunk: PrefillChunk) -> TokenRun | None:
        state = self.rows[chunk.row]
        self._expect(not state.is_decoding and chunk.start == state.num_computed < chunk.end, f"bad chunk {chunk}")
        self._expect(chunk.end <= len(state.tokens), f"chunk {chunk} past {len(state.tokens)} known tokens")
        self._expect(chunk.is_last == (chunk.end == len(state.tokens)), f"chunk {chunk}: is_last is wrong")
        for position in range(chunk.start, chunk.end):
            self._write_target(chunk.row, position, state.digests[position])
            if plan.draft_len:
                self._write_draft(chunk.row, position, state.digests[position])
        state.num_computed = chunk.end
        self._read(chunk.row, chunk.end)
        if not chunk.is_last:
            return None
        state.is_decoding = True
        token = model_token(state.start.seed, state.digests[-1])
        state.append(token)
        if plan.draft_len:
            self._write_draft(chunk.row, chunk.end, state.digests[-1])
            self._propose(chunk.row, plan.draft_len)
        return self._run(state, chunk.row, [token], 0, 0)

    def _run(self, state: _Row, row: int, emitted: list[int], num_drafts: int, num_accepted: int) -> TokenRun:
        has_logprobs = state.start.sampling.logprobs is not None
        return TokenRun(
            row=row,
            token_ids=tuple(emitted),
            num_draft_tokens=num_drafts,
            num_accepted=num_accepted,
            logprobs=tuple(-float(token) for token in emitted) if has_logprobs else (),
            is_finite=state.start.seed not in self.broken_seeds,
        )

    @staticmethod
    def _expect(condition: bool, message: str) -> None:
        if not condition:
            raise DeviceFault(message)


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class EngineLoop:
    """Scheduler and fake runner in the engine's loop, with every invariant checked at every turn.

    Args:
        num_pages: bundles that can be owned.
        page_size, max_num_seqs, prefill_chunk_tokens, max_model_len, draft_len: see SchedulerConfig.
        is_overlapped: plan step N + 1 before step N is committed.
        is_split: commit the ladders of a step before its chunks.
        enable_prefix: reuse stored pages.
        accept: the acceptance script.
        broken_seeds: see FakeRunner.
    """

    def __init__(
        self,
        *,
        num_pages: int = 64,
        page_size: int = 4,
        max_num_seqs: int = 4,
        prefill_chunk_tokens: int = 16,
        max_model_len: int = 128,
        draft_len: int = 3,
        is_overlapped: bool = False,
        is_split: bool = False,
        enable_prefix: bool = True,
        accept: Accept | None = None,
        broken_seeds: frozenset[int] = frozenset(),
    ) -> None:
        groups = (GroupSpec("target", num_pages + 1), GroupSpec("index", num_pages + 4))
        self.config = SchedulerConfig(
            max_num_seqs=max_num_seqs,
            prefill_chunk_tokens=prefill_chunk_tokens,
            page_size=page_size,
            max_model_len=max_model_len,
            draft_len=draft_len,
            max_steps_in_flight=2 if is_overlapped else 1,
        )
        self.clock = FakeClock()
        self.cache = CacheManager(groups, page_size, b"test", enable_prefix)
        self.scheduler = Scheduler(self.config, self.cache, self.clock)
        self.runner = FakeRunner(
            groups, page_size, max_num_seqs, max_model_len, accept or accept_randomly(0), broken_seeds
        )
        self.is_overlapped = is_overlapped
        self.is_split = is_split
        self.outputs: dict[str, list[RequestOutput]] = defaultdict(list)

    def submit(self, *requests: Request) -> None:
        """Queue requests."""
        for request in requests:
            self.scheduler.submit(request)

    def abort(self, request_id: str) -> None:
        """Abort a request and keep its last news."""
        output = self.scheduler.abort(request_id)
        if output is not None:
            self.outputs[request_id].append(output)

    def turn(self) -> StepPlan | None:
        """One turn of the loop: plan and submit, then collect and commit."""
        plan = self.scheduler.plan()
        if plan is not None:
            self.check_plan(plan)
            self.runner.submit(plan)
        elif not self.runner.pending:
            assert not self.scheduler.has_work, "work to do, nothing in flight, and no plan"
        self.cache.check()
        num_behind = 1 if self.is_overlapped and plan is not None else 0
        while len(self.runner.pending) > num_behind:
            self.commit_one()
        self.clock.now_s += 1.0
        return plan

    def commit_one(self) -> None:
        """Collect and commit the oldest step."""
        step_id = self.runner.pending[0].step_id
        plan = self.runner.plans[step_id]
        if self.is_split and plan.decode_rows and plan.chunks:
            result, _ = self.runner.collect_ladders(step_id)
            for output in self.scheduler.commit_ladders(result):
                self.outputs[output.request_id].append(output)
            self.cache.check()
        for output in self.scheduler.commit(self.runner.collect()):
            self.outputs[output.request_id].append(output)
        self.cache.check()

    def run(self, max_turns: int = 5000) -> None:
        """Turn until nothing is left to do."""
        for _ in range(max_turns):
            if not self.scheduler.has_work:
                return
            self.turn()
        raise AssertionError(f"not idle after {max_turns} turns")

    def check_plan(self, plan: StepPlan) -> None:
        """Assert that a plan keeps to its budgets, and that no row gets pages that an older one waits for."""
        num_chunk_tokens = sum(chunk.end - chunk.start for chunk in plan.chunks)
        assert num_chunk_tokens <= self.config.prefill_chunk_tokens
        assert len(plan.decode_rows) + len(plan.chunks) <= self.config.max_num_seqs
        assert len(plan.starts) <= self.config.max_num_seqs
        assert plan.decode_rows or plan.chunks
        assert plan.draft_len == self.config.draft_len
        counts = self.cache.counts
        assert 0 <= counts.num_used <= counts.num_pages
        assert {start.row for start in plan.starts} <= {chunk.row for chunk in plan.chunks}
        by_age = self.scheduler._state.by_age()
        busy = {*plan.decode_rows, *(chunk.row for chunk in plan.chunks)}
        idle = [item for item in by_age if isinstance(item, Decoding) and item.row not in busy and not item.is_leaving]
        oldest_short = min((item.ledger.order for item in idle if item.can_advance), default=float("inf"))
        given = {edit.row for edit in plan.page_edits if any(edit.pages)}
        assert all(item.ledger.order < oldest_short for item in by_age if item.row in given)

    def tokens(self, request_id: str) -> tuple[int, ...]:
        """Return what a request got so far."""
        return tuple(token for output in self.outputs[request_id] for token in output.token_ids)

    def assert_idle(self) -> None:
        """Assert that nothing runs or waits and every page is free or findable."""
        stats, counts = self.scheduler.stats(), self.cache.counts
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        assert counts.num_used == 0
        assert stats.num_free_pages + stats.num_cached_pages == stats.num_pages == self.cache.num_pages

    def assert_finished(self, *requests: Request) -> None:
        """Assert that each request returned exactly its stream, once ended."""
        for request in requests:
            tokens, finish_reason = expected_stream(request)
            outputs = self.outputs[request.request_id]
            assert self.tokens(request.request_id) == tokens
            assert [output.finish_reason for output in outputs[:-1]] == [None] * (len(outputs) - 1)
            assert outputs[-1].finish_reason == finish_reason


def make_request(
    request_id: str,
    prompt: Sequence[int],
    *,
    max_tokens: int = 8,
    seed: int = 1,
    stop: Sequence[int] = (),
    eos: Sequence[int] = (),
    arrival_s: float = 0.0,
    logprobs: int | None = None,
) -> Request:
    """Return a request with resolved limits."""
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(max_tokens=max_tokens, logprobs=logprobs),
        seed=seed,
        max_seq_len=len(prompt) + max_tokens,
        stop_token_ids=(*stop, *eos),
        eos_token_ids=tuple(eos),
        arrival_s=arrival_s,
    )


def random_prompt(rng: random.Random, max_len: int, num_shared: int = 3) -> tuple[int, ...]:
    """Return a prompt that often shares its beginning with others."""
    length = rng.randint(1, max_len)
    family = rng.randrange(num_shared)
    shared = [(family * 31 + position * 7) % VOCAB_SIZE for position in range(length)]
    num_kept = rng.choice([length, length // 2, 0])
    return tuple(shared[:num_kept] + [rng.randrange(VOCAB_SIZE) for _ in range(length - num_kept)])
