"""What the rules about autocast regions say of CUDA, asked of torch.

Fake tensors answer for the dispatch keys of a GPU without one; the tests marked `cuda` need one.
"""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F


def _fake_entropy(device: str, dtype: torch.dtype) -> None:
    """The loss on fake tensors of a device whose autocast is on."""
    was_on, was = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    with FakeTensorMode():
        probabilities = torch.empty(4, device=device, dtype=torch.float32)
        torch.set_autocast_enabled(device, True)
        torch.set_autocast_dtype(device, dtype)
        try:
            F.binary_cross_entropy(probabilities.float(), torch.empty(4, device=device))
        finally:
            torch.set_autocast_enabled(device, was_on)
            torch.set_autocast_dtype(device, was)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_autocast_forbids_entropy_in_every_dtype(device: str, dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        _fake_entropy(device, dtype)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_other_devices_allow_it(device: str) -> None:
    _fake_entropy(device, torch.float16)


@pytest.mark.cuda
def test_entropy_raises_on_a_gpu() -> None:
    probabilities = torch.rand(4, device="cuda")
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(probabilities, probabilities)
    with torch.autocast("cuda"), torch.autocast("cuda", enabled=False):
        assert torch.isfinite(F.binary_cross_entropy(probabilities, probabilities))


def _in_a_thread(question):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(question()))
    thread.start()
    thread.join()
    return answers[0]


def test_a_new_thread_has_the_default_dtype() -> None:
    was = torch.get_autocast_dtype("cuda")
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        assert torch.get_autocast_dtype("cuda") is torch.bfloat16
        assert _in_a_thread(lambda: torch.get_autocast_dtype("cuda")) is torch.float16
    finally:
        torch.set_autocast_dtype("cuda", was)


@pytest.mark.cuda
def test_replicas_in_threads_run_in_float16() -> None:
    from torch.nn.parallel import parallel_apply

    layer = torch.nn.Linear(4, 4).cuda()
    inputs = torch.randn(2, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert layer(inputs).dtype is torch.bfloat16
        replicas = parallel_apply([layer, layer], [inputs, inputs], devices=[0, 0])
    assert [outputs.dtype for outputs in replicas] == [torch.float16] * 2
