"""What AMP210 says of torch: on a GPU before Ampere it answers yes where bfloat16 is emulated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("major", "with_emulation", "native"), [(7, True, False), (8, True, True)])
def test_emulation_counts_as_support(
    monkeypatch: pytest.MonkeyPatch, major: int, with_emulation: bool, native: bool
) -> None:
    properties = SimpleNamespace(major=major, minor=5)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert torch.cuda.is_bf16_supported() is with_emulation
    assert torch.cuda.is_bf16_supported(including_emulation=False) is native
