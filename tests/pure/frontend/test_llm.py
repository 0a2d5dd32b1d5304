"""`LLM`: prompts in, completions out, in order; what is wrong is said before anything runs."""

from __future__ import annotations

import pytest

from slipstream.base.errors import (
    ConfigError,
    ContextLengthError,
    EngineError,
    OverloadedError,
    RequestError,
    UnsupportedFeature,
)
from slipstream.demo import demo_path
from slipstream.frontend import llm as llm_module
from slipstream.frontend.llm import LLM
from slipstream.frontend.processor import TextParts
from slipstream.text.tools.render import render_tool_calls
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.messages import RequestOutput
from slipstream.wire.sampling_params import SamplingParams
from slipstream.wire.step import NO_TOKEN_CODE
from support.fake_engine import FakeConfig, FakeModelSection, FakeSyncEngine, ScriptedEngine, fake_facts
from support.tiny_text import tiny_folder

TEXT = TextParts.load(tiny_folder())
EOS = TEXT.tokenizer.control_ids["[e~["]


def fake(**options) -> FakeSyncEngine:
    return FakeSyncEngine(ScriptedEngine(fake_facts()), **options)


def test_completions_come_in_the_order_of_the_prompts():
    prompts = ["the quick brown fox jumps over", [1, 2, 3], "A"]
    with LLM.over(fake(), TEXT) as llm:
        completions = llm.generate(prompts, SamplingParams(max_tokens=64))
    assert [c.text for c in completions] == [prompts[0], TEXT.tokenizer.decode([1, 2, 3]), "A"]
    assert [c.prompt_token_ids[-1:] for c in completions][1] == (3,)
    for completion in completions:
        assert completion.finish_reason == "stop"
        assert completion.token_ids == (*completion.prompt_token_ids, EOS)
    assert len({completion.request_id for completion in completions}) == 3


@pytest.mark.parametrize(
    ("prompts", "count"), [("A", 1), ([1, 2], 1), ((1, 2), 1), (["A", "B"], 2), ([[1], [2]], 2), ([], 0)]
)
def test_prompts_may_be_one_or_many(prompts, count):
    with LLM.over(fake(), TEXT) as llm:
        assert len(llm.generate(prompts)) == count


def test_parameters_may_differ_per_prompt():
    params = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=9, stop=("C",), logprobs=0)]
    with LLM.over(fake(), TEXT) as llm:
        first, second = llm.generate(["ABCD", "ABCD"], params)
    assert (first.text, first.finish_reason, first.stop_reason, first.logprobs) == ("AB", "length", None, ())
    assert (second.text, second.finish_reason, second.stop_reason) == ("AB", "stop", "C")
    assert len(second.logprobs) == len(second.token_ids) == 3


def test_speculation_is_counted():
    with LLM.over(fake(), TEXT) as llm:
        (completion,) = llm.generate("ABCDEFGH", SamplingParams(max_tokens=32))
    assert completion.num_verify_steps > 0
    assert completion.num_draft_tokens == 3 * completion.num_verify_steps
    # A run that ends at an accepted draft returns no token of the target's own.
    num_possible = 1 + completion.num_verify_steps + completion.num_accepted
    assert num_possible - len(completion.token_ids) in (0, 1)
    assert completion.num_emitted == len(completion.token_ids) - 1, "only the first token came from the prompt's pass"


@pytest.mark.parametrize(
    ("prompts", "params", "error", "says"),
    [
        (["A", ""], None, RequestError, "empty"),
        (["A", [400]], None, RequestError, "token id 400"),
        (["A", 5], None, RequestError, "give text or"),
        (5, None, RequestError, "prompts is int"),
        (["A", [1] * 600], None, ContextLengthError, "600 tokens"),
        (["A", "B"], [SamplingParams()], RequestError, "2 prompts and 1 params"),
        (["A"], {"max_tokens": 3}, RequestError, "params is dict"),
        (["A"], [None], RequestError, "SamplingParams"),
    ],
)
def test_a_bad_prompt_is_told_before_anything_runs(prompts, params, error, says):
    engine = fake()
    with LLM.over(engine, TEXT) as llm, pytest.raises(error, match=says):
        llm.generate(prompts, params)
    assert engine.engine.submitted == []


def test_conversations_may_be_one_or_many():
    one = [{"role": "user", "content": "hi"}]
    with LLM.over(fake(), TEXT) as llm:
        (single,) = llm.chat(one, SamplingParams(max_tokens=4))
        both = llm.chat([one, one], chat_template_kwargs={"thinking_mode": "disabled"})
        with pytest.raises(RequestError, match="role"):
            llm.chat([{"role": "robot", "content": "x"}])
        with pytest.raises(RequestError, match="empty"):
            llm.chat([])
    assert TEXT.tokenizer.decode(single.prompt_token_ids, skip_special_tokens=False).endswith("]~b]ai\n")
    assert len(both) == 2
    assert both[0].prompt_token_ids[-1] == TEXT.tokenizer.control_ids["</mm:think>"]


def test_a_stop_string_aborts_the_request_in_the_engine():
    engine = fake()
    with LLM.over(engine, TEXT) as llm:
        llm.generate("ABCD", SamplingParams(max_tokens=400, ignore_eos=True, stop=("D",)))
    assert engine.engine.num_aborts == 1
    assert engine.engine.running == {}


def test_a_prompt_that_leaves_no_token_ends_alone(monkeypatch):
    engine = fake()
    advance = engine.engine._advance

    def once(request_id, request, emitted):
        if request.sampling.grammar is None:
            return advance(request_id, request, emitted)
        del engine.engine.running[request_id]
        told = {"error": "no token may come next", "error_kind": "RequestError", "error_code": NO_TOKEN_CODE}
        return RequestOutput(request_id=request_id, finish_reason="error", **told)

    monkeypatch.setattr(engine.engine, "_advance", once)
    with LLM.over(engine, TEXT) as llm:
        params = [SamplingParams(grammar=GrammarSpec.regex("a")), SamplingParams(max_tokens=5)]
        none, other = llm.generate(["A", "B"], params)
        assert (none.finish_reason, none.error) == ("error", "no token may come next")
        assert other.finish_reason in ("stop", "length")


def test_the_variables_of_a_template_are_checked():
    with LLM.over(fake(), TEXT) as llm, pytest.raises(UnsupportedFeature, match="foo.*does not read it"):
        llm.chat([{"role": "user", "content": "A"}], chat_template_kwargs={"foo": 1})


def test_the_death_of_the_engine_is_one_clear_error():
    engine = fake(dies_after=2)
    with LLM.over(engine, TEXT) as llm:
        with pytest.raises(EngineError, match="told to die"):
            llm.generate("A" * 60, SamplingParams(max_tokens=200))
        assert engine.is_closed
        with pytest.raises(EngineError, match="closed"):
            llm.generate("A")


class Breaking(FakeSyncEngine):
    """Raises when it is polled with work, and again when it is closed."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(ScriptedEngine(fake_facts()))
        self.error = error
        self.num_polls = 0

    def poll(self, timeout_s):
        self.num_polls += 1
        if self.engine.running:
            raise self.error
        return super().poll(timeout_s)

    def close(self) -> None:
        super().close()
        raise RuntimeError("the state is broken")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_leaving_in_the_middle_closes_the_llm_and_says_so_once(error):
    engine = Breaking(error)
    llm = LLM.over(engine, TEXT)
    with pytest.raises(type(error)) as caught:
        llm.generate(["A", "B"])
    assert caught.value is error
    assert caught.value.__notes__ == [
        "slipstream: this LLM is closed and its running requests are lost; make a new one"
    ]
    assert engine.is_closed
    num_polls = engine.num_polls
    for _ in range(2):
        with pytest.raises(EngineError, match=f"this LLM is closed since {type(error).__name__}.*make a new one"):
            llm.generate("A")
    assert engine.num_polls == num_polls
    llm.close()


@pytest.mark.parametrize("error", [RuntimeError("a shape is wrong"), MemoryError(), ValueError("x")])
def test_any_fault_of_a_step_is_one_clear_error_and_closes_the_llm(error):
    engine = Breaking(error)
    with LLM.over(engine, TEXT) as llm:
        with pytest.raises(EngineError, match=f"{type(error).__name__}.*this LLM is closed.*make a new one") as caught:
            llm.generate(["A", "B"])
        assert caught.value.__cause__ is error
        assert engine.is_closed
        with pytest.raises(EngineError, match=f"closed since {type(error).__name__}"):
            llm.chat([{"role": "user", "content": "A"}])


def test_a_failed_request_is_reported_beside_the_others():
    class Poisoned(ScriptedEngine):
        def _advance(self, request_id, request, emitted):
            output = super()._advance(request_id, request, emitted)
            if request.prompt_token_ids == (7,):
                self.running.pop(request_id, None)
                return type(output)(request_id=request_id, finish_reason="error", error="the logits held NaN")
            return output

    with LLM.over(FakeSyncEngine(Poisoned(fake_facts())), TEXT) as llm:
        good, bad = llm.generate([[5], [7]])
    assert good.finish_reason == "stop"
    assert (bad.finish_reason, bad.error, bad.token_ids) == ("error", "the logits held NaN", ())


def test_close_ends_the_engine_and_may_be_called_twice():
    engine = fake()
    llm = LLM.over(engine, TEXT)
    assert llm.facts.vocab_size == 400
    llm.close()
    llm.close()
    assert engine.is_closed


def test_an_engine_that_fails_to_start_is_closed():
    engine = fake(dies_after=0)
    engine._is_ready_told = True
    with pytest.raises(EngineError, match="told to die"):
        LLM.over(engine, TEXT)
    assert engine.is_closed


def test_options_reach_the_configuration(monkeypatch):
    seen = {}

    def start_inline(config, on_progress):
        seen["config"], seen["on_progress"] = config, on_progress
        return fake()

    def resolve(options, hardware, switches):
        seen["options"], seen["hardware"], seen["switches"] = options, hardware, switches
        return FakeConfig(model=FakeModelSection(path=str(tiny_folder())))

    monkeypatch.setattr(llm_module, "start_inline", start_inline)
    monkeypatch.setattr(llm_module, "resolve", resolve)
    monkeypatch.setenv("SLIPSTREAM_CHECK_RANKS", "1")
    with LLM("somewhere", drafter="ngram", draft_len=2, max_num_seqs=3, on_progress=print):
        pass
    options = seen["options"]
    assert (options.model, options.drafter, options.draft_len) == ("somewhere", "ngram", 2)
    assert (options.max_num_seqs, options.device, options.verification) == (3, "auto", "auto")
    assert seen["on_progress"] is print
    assert seen["switches"].check_ranks


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match="colour"):
        LLM("demo", colour="red")


DEMO = TextParts.load(demo_path())
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "string"}}}}}]
QUESTION = [{"role": "user", "content": "hi"}]


def saying(text: str) -> LLM:
    """Return an LLM whose engine says a text and ends."""
    tokens = [*DEMO.tokenizer.encode(text), *DEMO.tokenizer.eos_token_ids]
    facts = fake_facts(vocab_size=DEMO.tokenizer.vocab_size, max_model_len=2048, num_cache_tokens=4096)
    return LLM.over(FakeSyncEngine(ScriptedEngine(facts, lambda request: tokens)), DEMO)


def test_an_answer_comes_apart_into_reasoning_content_and_calls():
    call = render_tool_calls([("f", {"x": "y"})])
    params = SamplingParams(max_tokens=200)
    with saying(f"hm</mm:think>so {call}") as llm:
        (one,) = llm.chat(QUESTION, params, tools=TOOLS, chat_template_kwargs={"thinking_mode": "enabled"})
        assert (one.reasoning, one.content, one.finish_reason) == ("hm", "so", "tool_calls")
        assert [(call.name, call.arguments) for call in one.tool_calls] == [("f", '{"x":"y"}')]
        assert one.text == f"hm</mm:think>so {call}"
        (one,) = llm.chat(QUESTION, params, tools=TOOLS, tool_choice="none")
        assert (one.content, one.tool_calls, one.finish_reason) == (one.text, (), "stop")
    with saying(call) as llm:
        (one,) = llm.generate("A", SamplingParams(max_tokens=200))
        assert (one.content, one.reasoning, one.tool_calls) == (one.text, "", ())


def test_a_choice_that_forces_a_call_is_a_grammar_of_the_request():
    with saying(render_tool_calls([("f", {})])) as llm:
        llm.chat(QUESTION, SamplingParams(max_tokens=99), tools=TOOLS, tool_choice="required")
        llm.chat(
            QUESTION,
            SamplingParams(max_tokens=99),
            tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "f"}},
            chat_template_kwargs={"thinking_mode": "enabled"},
        )
        first, second = llm._engine.engine.submitted
    assert first.sampling.grammar.kind == second.sampling.grammar.kind == "grammar"
    assert (first.grammar_starts, second.grammar_starts) == ("answer", "after_reasoning")


def test_a_constraint_is_accepted_in_silence():
    with LLM.over(fake(), TEXT) as llm:
        free, bound = llm.generate(["A", "A"], [SamplingParams(), SamplingParams(grammar=GrammarSpec.regex("A"))])
    assert free.text == bound.text == "A"
    assert bound.finish_reason == "stop"


@pytest.mark.parametrize(("text", "error"), [("bad", RequestError), ("many", OverloadedError)])
def test_a_refused_constraint_gives_the_other_prompts_up_and_the_llm_goes_on(text, error):
    engine = fake()
    with LLM.over(engine, TEXT) as llm:
        long = SamplingParams(max_tokens=400, ignore_eos=True)
        with pytest.raises(error, match=f"cannot be used: {text}") as caught:
            llm.generate(["A", "B", "C"], [long, SamplingParams(grammar=GrammarSpec.regex(text)), long])
        if error is RequestError:
            assert caught.value.code == "invalid_grammar"
        assert engine.engine.running == {}
        assert engine.engine.num_aborts == 2
        assert not engine.is_closed
        assert llm.generate("A")[0].text == "A"
