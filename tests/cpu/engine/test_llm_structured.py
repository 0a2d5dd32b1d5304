"""`LLM.generate` with constraints, on a tiny model with a tokenizer: right texts, clear refusals, nothing left over."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.base.errors import RequestError
from slipstream.frontend.llm import LLM
from slipstream.wire.grammar import GrammarSpec
from slipstream.wire.sampling_params import SamplingParams
from support.processes import is_alive, wait_until
from support.tiny_llm import make_tiny_llm

PROMPT = "the quick brown fox"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["fox", "dog"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
UNSUPPORTED = [
    GrammarSpec.regex("("),
    GrammarSpec.regex("(?=a)a"),
    GrammarSpec.json_schema({"type": "object", "unevaluatedProperties": False}),
    GrammarSpec.json_schema({"type": "no such type"}),
    GrammarSpec.grammar("start: missing"),
    GrammarSpec.json_schema(False),
]


@pytest.fixture(scope="module", params=["none", "ngram"])
def llm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LLM]:
    folder: Path = make_tiny_llm(tmp_path_factory.mktemp("tiny-llm") / "model")
    with LLM(str(folder), drafter=request.param, threads=1) as made:
        yield made


def no_spaces(llm: LLM) -> dict[int, float]:
    """A bias that keeps a random model from filling its budget with white space."""
    tokenizer = llm._processor.tokenizer
    texts = {token: tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)}
    return {token: -100.0 for token, text in texts.items() if set(text) & set(b" \n\r\t")}


def test_every_kind_of_constraint_gives_what_it_asks_for(llm: LLM) -> None:
    specs = {
        "schema": GrammarSpec.json_schema(SCHEMA),
        "regex": GrammarSpec.regex("(fox|dog){1,3}[0-9]{2}"),
        "choice": GrammarSpec.choice(["brown fox", "lazy dog"]),
        "lark": GrammarSpec.grammar('start: "a" "b"~2..4 "c"'),
        "ebnf": GrammarSpec.grammar('root ::= "x" ("y" | "z") "x"'),
        "structural": GrammarSpec.structural(
            {"structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f>"]}
        ),
    }
    wishes = {"temperature": 0.9, "logit_bias": no_spaces(llm)}
    params = [
        SamplingParams(seed=seed, grammar=spec, max_tokens=60 if name == "structural" else 200, **wishes)
        for name, spec in specs.items()
        for seed in range(3)
    ]
    found = llm.generate([PROMPT] * len(params), params)
    texts = {name: [one.text for one in found[3 * place : 3 * place + 3]] for place, name in enumerate(specs)}
    assert [one.error for one in found] == [None] * len(found)
    for place, name in enumerate(specs):
        if name != "structural":
            assert {one.finish_reason for one in found[3 * place : 3 * place + 3]} == {"stop"}, name
    for text in texts["schema"]:
        value = json.loads(text)
        assert set(value) == {"name", "age"}
        assert value["name"] in ("fox", "dog")
        assert 0 <= value["age"] <= 99
    assert all(re.fullmatch("(fox|dog){1,3}[0-9]{2}", text) for text in texts["regex"])
    assert set(texts["choice"]) <= {"brown fox", "lazy dog"}
    assert all(re.fullmatch("ab{2,4}c", text) for text in texts["lark"])
    assert set(texts["ebnf"]) <= {"xyx", "xzx"}


@pytest.mark.parametrize("spec", UNSUPPORTED, ids=lambda spec: f"{spec.kind}-{spec.text[:20]}")
def test_an_unsupported_constraint_is_a_request_error_and_the_llm_goes_on(llm: LLM, spec: GrammarSpec) -> None:
    free = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    before = llm.generate(PROMPT, free)
    with pytest.raises(RequestError) as caught:
        llm.generate([PROMPT, PROMPT, PROMPT], [free, SamplingParams(grammar=spec), free])
    assert caught.value.code in ("invalid_grammar", "grammar_too_large")
    assert len(str(caught.value)) > 20
    assert [one.token_ids for one in llm.generate(PROMPT, free)] == [one.token_ids for one in before]
    core = llm._engine._core
    assert not core.has_work
    assert len(core._grammars._registry) == 0


def test_a_known_constraint_is_not_compiled_again(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=40, grammar=GrammarSpec.regex("(fox){3}"))
    compiler = llm._engine._core._grammars._compiler
    first = llm.generate(PROMPT, params)
    grammar = compiler.find(params.grammar)
    assert llm.generate([PROMPT] * 3, params)[2].text == first[0].text == "foxfoxfox"
    assert compiler.find(params.grammar) is grammar


def test_closing_leaves_neither_process_nor_thread(tmp_path: Path) -> None:
    folder, before = make_tiny_llm(tmp_path / "model"), set(threading.enumerate())
    with LLM(str(folder), drafter="none", threads=1) as llm:
        core = llm._engine._core
        assert core._grammars._compiler.guard_pid is None, "nothing is started before somebody asks"
        llm.generate(PROMPT, SamplingParams(max_tokens=9, grammar=GrammarSpec.json_object()))
        pid = core._grammars._compiler.guard_pid
        assert pid is not None
        assert is_alive(pid)
    assert wait_until(lambda: not is_alive(pid))
    assert [thread.name for thread in set(threading.enumerate()) - before if "grammar" in thread.name] == []
