from __future__ import annotations

import shlex
import subprocess

import pytest

from slipstream.harness.provenance import collect, describe_command, find_version, read_revision


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_facts_are_complete():
    facts = collect(num_threads=3, argv=["/some/where/slipstream", "bench", "--prompt", "a b"])
    assert facts.num_threads == 3
    assert facts.num_cores >= 1
    assert facts.processor
    assert facts.command == "slipstream bench --prompt 'a b'"
    assert dict(facts.versions)["numpy"] == find_version("numpy")


def test_absent_packages_have_no_version():
    assert find_version("no-such-package-here") is None
    assert describe_command([]) == ""


@pytest.mark.parametrize("key", [("--api-key", "S3CRET"), ("--api-key=S3CRET",)])
def test_a_command_keeps_keys_and_places_of_the_machine_to_itself(key):
    argv = ["/opt/x/slipstream", "bench", "http://me:S3CRET@host:8000/v1", *key, "--out", "/home/me/r.toml"]
    argv += ["--prompts=/home/me/p.jsonl", "~/home/me/more", "../me/extra.txt", "recipes/demo"]
    shown = describe_command(argv)
    assert "S3CRET" not in shown
    assert "me/" not in shown
    assert "me:" not in shown
    words = shlex.split(shown)
    assert words[0] == "slipstream"
    assert words[2] == "http://***@host:8000/v1"
    assert words[-6:] == ["--out", "r.toml", "--prompts=p.jsonl", "more", "extra.txt", "recipes/demo"]
    assert "***" in words[3] + words[4]


def test_revision_tells_a_changed_tree(tmp_path):
    assert read_revision(tmp_path) == "unknown"
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one", encoding="utf-8")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "first")
    clean = read_revision(tmp_path)
    assert len(clean) == 12
    (tmp_path / "file").write_text("two", encoding="utf-8")
    assert read_revision(tmp_path) == clean + "+changes"


def test_revision_looks_at_the_whole_tree_and_at_new_files_but_not_at_results(tmp_path):
    git(tmp_path, "init", "-q")
    package, results = tmp_path / "src" / "package", tmp_path / "benchmarks" / "results"
    package.mkdir(parents=True)
    results.mkdir(parents=True)
    (package / "file").write_text("one", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    clean = read_revision(package)
    (results / "r.toml").write_text("x = 1", encoding="utf-8")
    assert read_revision(package) == clean, "a result file is what a measurement leaves behind"
    (tmp_path / "new").write_text("one", encoding="utf-8")
    assert read_revision(package) == clean + "+changes", "a new file beside the package changes what runs"
