"""lm-eval against the server: answers through chat, log-likelihoods through completions with echo.

Its tasks and their data lie in tests/clients/lm_eval; nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from slipstream import LLM, SamplingParams
from slipstream.demo import demo_path
from support.live_server import LiveServer, live_server
from support.outside import CLIENTS, run_program

pytestmark = pytest.mark.xdist_group("clients")

TASKS = CLIENTS / "lm_eval"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("demo", "--max-num-seqs", "8") as one:
        yield one


def evaluate(model: str, arguments: str, task: str, folder: Path, *more: str) -> list[dict[str, Any]]:
    """Run one task and return its samples, in the order of the data."""
    said = run_program(
        "lm_eval",
        *("run", "--model", model, "--model_args", f"model=demo,num_concurrent=4,max_retries=1,{arguments}"),
        *("--tasks", task, "--include_path", ".", "--log_samples", "--output_path", str(folder), *more),
        cwd=TASKS,
        timeout_s=120,
        HF_HOME=str(folder / "cache"),
    )
    assert f"|{task}|" in said, said
    [samples] = folder.rglob("samples_*.jsonl")
    found = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    return sorted(found, key=lambda sample: sample["doc_id"])


def test_answers_are_those_of_any_other_client(server: LiveServer, tmp_path: Path) -> None:
    url = f"{server.base_url}/v1"
    samples = evaluate(
        "local-chat-completions",
        f"base_url={url}/chat/completions",
        "slipstream_chat",
        tmp_path,
        "--apply_chat_template",
    )
    questions = json.loads((TASKS / "questions.json").read_text(encoding="utf-8"))
    assert len(samples) == len(questions)
    with openai.OpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        for sample, doc in zip(samples, questions, strict=True):
            answer = client.chat.completions.create(
                model="demo",
                messages=[{"role": "user", "content": doc["question"]}],
                temperature=0,
                max_tokens=24,
                stop=["\n\n"],
            )
            assert sample["resps"] == [[answer.choices[0].message.content]]


def test_log_likelihoods_are_those_of_the_engine(server: LiveServer, tmp_path: Path) -> None:
    samples = evaluate(
        "local-completions",
        f"base_url={server.base_url}/v1/completions,tokenizer={demo_path()},tokenizer_backend=huggingface",
        "slipstream_choice",
        tmp_path,
    )
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1)
    with LLM("demo", max_num_seqs=4) as llm:
        for sample in samples:
            text = sample["doc"]["text"]
            for choice, [(value, is_greedy)] in zip(sample["doc"]["choices"], sample["resps"], strict=True):
                [whole] = llm.generate([f"{text} {choice}"], params)
                [start] = llm.generate([text], params)
                num_context = len(start.prompt_token_ids)
                assert whole.prompt_token_ids[:num_context] == start.prompt_token_ids
                assert float(value) == pytest.approx(sum(whole.prompt_logprobs[num_context - 1 :]), abs=1e-3)
                likeliest = [top[0][0] for top in whole.prompt_top_logprobs[num_context - 1 :]]
                assert (is_greedy == "True") == (likeliest == list(whole.prompt_token_ids[num_context:]))
            totals = [float(value) for [(value, _)] in sample["resps"]]
            assert sample["acc"] == float(totals.index(max(totals)) == sample["doc"]["best"])
