from __future__ import annotations

from types import SimpleNamespace

from slipstream.kernels.compile_watch import CompileWatch


def compiled(name):
    return {"fn": SimpleNamespace(name=name), "repr": f"{name}[...]", "key": "k"}


def test_what_is_compiled_after_arming_is_counted_and_named():
    runtime = SimpleNamespace(jit_post_compile_hook=None)
    watch = CompileWatch(runtime)
    assert runtime.jit_post_compile_hook is None
    watch.arm()
    runtime.jit_post_compile_hook(**compiled("one_kernel"))
    runtime.jit_post_compile_hook(**compiled("other_kernel"))
    assert (watch.num_compiled, watch.last_name) == (2, "other_kernel")
    watch.disarm()
    assert runtime.jit_post_compile_hook is None


def test_somebody_else_s_hook_is_kept():
    seen = []
    runtime = SimpleNamespace(jit_post_compile_hook=lambda **given: seen.append(given["repr"]))
    watch = CompileWatch(runtime)
    watch.arm()
    runtime.jit_post_compile_hook(**compiled("a"))
    assert (watch.num_compiled, seen) == (1, ["a[...]"])
    watch.disarm()
    runtime.jit_post_compile_hook(**compiled("b"))
    assert (watch.num_compiled, len(seen)) == (1, 2)


def test_a_watch_that_was_never_armed_takes_nothing_away():
    CompileWatch().disarm()
