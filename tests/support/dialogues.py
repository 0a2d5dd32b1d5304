"""The recorded dialogues of tests/data/dialogues: what a client sends, and the prompt that the product makes of it.

Each file holds one dialogue and, by template (`demo`: the bundled one; `family`: family.jinja beside the dialogues), a
record of its prompt: text, token ids of the bundled tokenizer, and what the answer starts in. tools/record_dialogues.py
writes the records.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from slipstream.demo import demo_path
from slipstream.frontend.chat import ChatAsk, PreparedChat
from slipstream.frontend.processor import Processor, TextParts
from slipstream.text.chat_template import ChatTemplate
from slipstream.text.messages import parse_messages
from slipstream.text.tokenizer import Tokenizer
from slipstream.text.tools.schema import parse_tool_choice, parse_tools
from slipstream.wire.sampling_params import SamplingParams
from support.fake_engine import fake_facts

FOLDER = Path(__file__).parent.parent / "data" / "dialogues"
SOURCES = {
    "demo": (demo_path() / "chat_template.jinja").read_text(encoding="utf-8"),
    "family": (FOLDER / "family.jinja").read_text(encoding="utf-8"),
}
TOKENIZER = Tokenizer.load(demo_path())
# Characters that show nothing or turn the direction of what follows: a reader of the file must see them.
_UNSEEN = re.compile("[\u00a0\u0300-\u036f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ue000-\uf8ff\U000f0000-\U0010ffff]")


def names() -> list[str]:
    """Return the dialogues, in order."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@functools.cache
def dialogue(name: str) -> dict[str, Any]:
    """Return one dialogue with its records."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def processor(source: str) -> Processor:
    """Return the product's way from messages to token ids, for a template."""
    facts = fake_facts(vocab_size=TOKENIZER.vocab_size, max_model_len=4096, num_cache_tokens=4096)
    return Processor(TextParts(TOKENIZER, ChatTemplate(source, TOKENIZER)), facts)


def prepare(asked: dict[str, Any], through: Processor) -> PreparedChat:
    """Return what the product hands to the engine for a dialogue."""
    tools = parse_tools(asked.get("tools"))
    ask = ChatAsk(
        messages=parse_messages(asked["messages"]),
        tools=tools,
        tool_choice=parse_tool_choice(None, tools),
        template_kwargs=asked.get("template_kwargs", {}),
        add_generation_prompt=asked.get("add_generation_prompt", True),
    )
    return through.prepare_chat(ask, SamplingParams())


def record(asked: dict[str, Any], through: Processor) -> dict[str, Any]:
    """Return the record of a dialogue."""
    prepared = prepare(asked, through)
    text = TOKENIZER.decode(prepared.prompt_token_ids, skip_special_tokens=False)
    return {
        "starts_in": prepared.starts_in,
        "text": text.splitlines(keepends=True),
        "token_ids": list(prepared.prompt_token_ids),
    }


def file_text(recorded: dict[str, Any]) -> str:
    """Return a dialogue as its file holds it: token ids on one line, unseen characters escaped."""
    text = json.dumps(recorded, ensure_ascii=False, indent=2)
    text = re.sub(r'(?<="token_ids": )\[[\d,\s]+\]', lambda found: json.dumps(json.loads(found[0])), text)
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n"
