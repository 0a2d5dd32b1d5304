"""An engine of two ranks in the caller's process and one more, driven by hand."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import msgspec

from slipstream.engine.assemble import assemble
from slipstream.engine.inline import InlineEngine
from slipstream.engine.ranks import RankChoices
from slipstream.wire.messages import Failed, Outputs, Ready
from support import faulty_rank


def with_ranks(config, *, tp_size=2, check=True, cache=None, scheduler=None, speculation=None):
    """Return a configuration for several ranks, with some fields of its sections replaced."""
    return msgspec.structs.replace(
        config,
        parallel=msgspec.structs.replace(config.parallel, tp_size=tp_size, check_ranks=check),
        cache=msgspec.structs.replace(config.cache, **{"num_pages": 200, "poison_freed_pages": True, **(cache or {})}),
        scheduler=msgspec.structs.replace(config.scheduler, **{"max_num_seqs": 4, **(scheduler or {})}),
        speculation=msgspec.structs.replace(config.speculation, **(speculation or {})),
    )


class RankEngine:
    """What a front end sees of the engine, and the processes behind it."""

    def __init__(self, config, *, is_faulty=False, timeout_s=30.0):
        choices = RankChoices(timeout_s=timeout_s)
        if is_faulty:
            choices = RankChoices(module="support.faulty_rank", build=faulty_rank.build, timeout_s=timeout_s)
        self.core, facts = assemble(config, lambda progress: None, choices)
        self.engine = InlineEngine(self.core, facts)
        assert isinstance(self.engine.poll()[0], Ready)
        self.outputs = []
        self.failure = None

    @property
    def pids(self):
        """Process ids of the other ranks."""
        return [worker.process.pid for worker in self.core._runner._workers]

    def submit(self, requests):
        """Queue requests."""
        self.outputs.clear()
        for request in requests:
            self.engine.submit(request)

    def turn(self):
        """Poll once."""
        for message in self.engine.poll():
            if isinstance(message, Outputs):
                self.outputs += message.outputs
            elif isinstance(message, Failed):
                self.failure = message

    def finish(self, limit_s=60.0):
        """Poll until nothing is left to do or the engine failed; a time limit stands for a hang."""
        deadline = time.monotonic() + limit_s
        while self.failure is None and self.core.has_work:
            assert time.monotonic() < deadline, "the engine hangs"
            self.turn()

    def run(self, requests):
        """Run requests to their end; return name -> tokens."""
        self.submit(requests)
        self.finish()
        assert self.failure is None, self.failure
        assert {output.finish_reason for output in self.outputs} <= {None, "length"}
        return self.tokens()

    def tokens(self):
        """Tokens of every request that got some."""
        tokens = {}
        for output in self.outputs:
            tokens.setdefault(output.request_id, []).extend(output.token_ids)
        return tokens

    def ends(self):
        """(request, how it ended) -> how often."""
        return Counter((o.request_id, o.finish_reason) for o in self.outputs if o.finish_reason is not None)

    def signal(self, number=signal.SIGKILL):
        """Signal every other rank."""
        for pid in self.pids:
            os.kill(pid, number)

    def close(self):
        """End the engine."""
        self.engine.close()
