"""A tiny byte-level tokenizer with the family's control tokens, and a chat template of the family's shape.

Written for the tests: nothing is trained beyond a few merges, nothing is taken from a checkpoint.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

CONTROL = ("]~!b[", "]~b]", "[e~[", "<mm:think>", "</mm:think>", "]<]minimax[>[", "<tool_call>", "]<]start of image[>[")
SPECIAL = frozenset({"]~!b[", "]~b]", "[e~[", "]<]start of image[>["})

TEMPLATE = """\
{%- macro visible(content) -%}
{%- if content is string -%}{{ content }}{%- else -%}{{ raise_exception('content must be text') }}{%- endif -%}
{%- endmacro -%}
{{- ']~!b[' ~ ']~b]system' ~ '\\n' -}}
You are a tiny test model.{{ '\\n\\nthinking: ' ~ thinking_mode if thinking_mode is defined else '' }}{{- '[e~[\\n' -}}
{%- for message in messages -%}
{%- if message.role in ('system', 'developer', 'root') -%}
{{- ']~b]developer\\n' ~ visible(message.content) ~ '[e~[\\n' -}}
{%- elif message.role == 'user' -%}
{{- ']~b]user\\n' ~ visible(message.content) | trim ~ '[e~[\\n' -}}
{%- elif message.role == 'assistant' -%}
{%- set content = message.content -%}
{%- if '</mm:think>' in content -%}{%- set content = content.split('</mm:think>')[-1].strip('\\n') -%}{%- endif -%}
{{- ']~b]ai\\n' ~ '</mm:think>' ~ content ~ '[e~[\\n' -}}
{%- else -%}
{{- raise_exception('unknown role ' ~ message.role) -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- ']~b]ai\\n' -}}
{%- if thinking_mode == 'disabled' -%}</mm:think>{%- endif -%}{%- endif -%}
"""

_CORPUS = (
    "the quick brown fox jumps over the lazy dog and then the dog sleeps while the fox reads a book",
    "user system assistant thinking hello world stop end of the line 0123456789",
)


@functools.cache
def backend_json() -> str:
    """Return tokenizer.json: 256 bytes, some merges, then the control tokens."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=[]
    )
    backend.train_from_iterator(_CORPUS * 3, trainer)
    for text in CONTROL:
        token = tokenizers.AddedToken(text, special=text in SPECIAL, normalized=False)
        (backend.add_special_tokens if text in SPECIAL else backend.add_tokens)([token])
    return backend.to_str()


def write_tiny_text(folder: Path, *, template: str | None = TEMPLATE) -> Path:
    """Write the text files of a checkpoint into `folder` (created) and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(backend_json(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "]~!b[", "eos_token": {"content": "[e~["}}), encoding="utf-8"
    )
    eos = tokenizers.Tokenizer.from_str(backend_json()).token_to_id("[e~[")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [eos]}), encoding="utf-8")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


@functools.cache
def tiny_folder() -> Path:
    """Return a folder with the text files, one per test process; do not write into it."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-text-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write_tiny_text(folder)
