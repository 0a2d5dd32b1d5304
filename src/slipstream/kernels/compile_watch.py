"""Notice kernels that are compiled while requests wait: each costs a request a second or more.

Everything that serving can reach is compiled in the warm-up; what is compiled afterwards was missed there.
"""

from __future__ import annotations

from typing import Any


class CompileWatch:
    """Counts compilations of Triton kernels in this process from `arm` on.

    Args:
        triton_runtime: Triton's settings with the hook that it calls after compiling; None takes Triton's own.
    """

    def __init__(self, triton_runtime: Any = None) -> None:
        self.num_compiled = 0
        self.last_name = ""
        self._runtime = triton_runtime
        self._next: Any = None

    def arm(self) -> None:
        """Begin to count. Another hook that is there already goes on being called."""
        if self._runtime is None:
            # Not at the top: a machine without Triton can import this module.
            from triton import knobs

            self._runtime = knobs.runtime
        self._next = self._runtime.jit_post_compile_hook
        self._runtime.jit_post_compile_hook = self._note

    def disarm(self) -> None:
        """Stop counting, and leave Triton as it was."""
        if self._runtime is not None and self._runtime.jit_post_compile_hook == self._note:
            self._runtime.jit_post_compile_hook = self._next

    def _note(self, **compiled: Any) -> bool | None:
        self.num_compiled += 1
        self.last_name = str(getattr(compiled.get("fn"), "name", "")) or str(compiled.get("repr", "?"))
        return self._next(**compiled) if self._next is not None else None
