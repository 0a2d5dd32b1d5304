from __future__ import annotations

import subprocess

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
