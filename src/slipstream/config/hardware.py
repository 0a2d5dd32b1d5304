"""What the machine offers, found without torch. Not here: what to make of it; see `resolve`."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import msgspec

_MEMINFO = Path("/proc/meminfo")
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CGROUP_USED = Path("/sys/fs/cgroup/memory.current")
_CGROUP_STAT = Path("/sys/fs/cgroup/memory.stat")
_KIB = 1024
_MIB = 1024 * _KIB
_QUERY_TIMEOUT_S = 20


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as far as configuration cares.

    Args:
        num_cpus: cores that this process may use.
        total_memory_bytes: host memory, or the container's limit when that is lower.
        available_memory_bytes: what could be allocated now.
        cuda_devices: names of CUDA devices; empty when there are none.
        cuda_total_bytes: memory of the first of them; 0 when it is not known.
        cuda_free_bytes: what of it could be allocated now.
        has_cuda_torch: whether the installed torch was built for CUDA, by its version.
    """

    num_cpus: int
    total_memory_bytes: int
    available_memory_bytes: int
    cuda_devices: tuple[str, ...] = ()
    cuda_total_bytes: int = 0
    cuda_free_bytes: int = 0
    has_cuda_torch: bool = False


def probe_hardware() -> Hardware:
    """Return the hardware of this machine."""
    total, available = _memory()
    limit, used = _number(_CGROUP_LIMIT), _number(_CGROUP_USED)
    if limit is not None and limit < total:
        total = limit
        # Files kept in memory count as used there, but give way to an allocation.
        available = min(available, max(limit - (used or 0) + _droppable_bytes(), 0))
    devices = _cuda_devices()
    cuda_total, cuda_free = _cuda_memory() if devices else (0, 0)
    return Hardware(
        num_cpus=_num_cpus(),
        total_memory_bytes=total,
        available_memory_bytes=available,
        cuda_devices=devices,
        cuda_total_bytes=cuda_total,
        cuda_free_bytes=cuda_free,
        has_cuda_torch=_has_cuda_torch(),
    )


def _num_cpus() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> tuple[int, int]:
    """Return (total, available) bytes."""
    if _MEMINFO.exists():
        fields = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="ascii").splitlines() if ":" in line)
        kib = {name: int(fields[name].split()[0]) for name in ("MemTotal", "MemAvailable")}
        return kib["MemTotal"] * _KIB, kib["MemAvailable"] * _KIB
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, total // 2


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _droppable_bytes() -> int:
    try:
        lines = _CGROUP_STAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def _cuda_devices() -> tuple[str, ...]:
    if not _NVIDIA.is_dir():
        return ()
    names: list[str] = []
    for folder in sorted(_NVIDIA.iterdir()):
        information = folder / "information"
        if information.is_file():
            lines = information.read_text(encoding="utf-8", errors="replace").splitlines()
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("Model")), "")
            names.append(model or folder.name)
    return tuple(names)


def _cuda_memory() -> tuple[int, int]:
    """Return (total, free) bytes of the first device, as its driver's own tool says; (0, 0) when it does not answer."""
    command = ["nvidia-smi", "--query-gpu=memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0
    return parse_cuda_memory(done.stdout)


def parse_cuda_memory(text: str) -> tuple[int, int]:
    """Return (total, free) bytes of the first device.

    Args:
        text: a line per device, its total and free memory in MiB, separated by a comma.
    """
    numbers = [part.strip() for part in text.partition("\n")[0].split(",")]
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        return 0, 0
    return int(numbers[0]) * _MIB, int(numbers[1]) * _MIB


def _has_cuda_torch() -> bool:
    """Return whether torch is there and does not call itself a CPU build; loading it would take seconds."""
    try:
        return not importlib.metadata.version("torch").endswith("+cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
