import os

import pytest

from slipstream.config.hardware import Hardware, parse_cuda_memory, probe_hardware


def test_the_probe_finds_a_plausible_machine() -> None:
    hardware = probe_hardware()
    assert 1 <= hardware.num_cpus <= (os.cpu_count() or 1)
    assert 0 < hardware.available_memory_bytes <= hardware.total_memory_bytes
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert hardware.total_memory_bytes <= physical


def test_the_probe_is_a_plain_value() -> None:
    given = Hardware(num_cpus=2, total_memory_bytes=8, available_memory_bytes=4, cuda_devices=("GPU",))
    assert given == Hardware(num_cpus=2, total_memory_bytes=8, available_memory_bytes=4, cuda_devices=("GPU",))


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("143771, 143000\n143771, 5\n", (143771 << 20, 143000 << 20)),
        ("", (0, 0)),
        ("[N/A], [N/A]\n", (0, 0)),
        ("No devices were found\n", (0, 0)),
    ],
)
def test_the_first_device_s_memory_is_read(text: str, memory: tuple[int, int]) -> None:
    assert parse_cuda_memory(text) == memory
