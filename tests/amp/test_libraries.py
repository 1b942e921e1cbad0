"""The table of libraries: consistent, found under every name, and right about torch's optimizers."""

from __future__ import annotations

import pytest
import torch

from amplint.amp import libraries
from amplint.amp.libraries import (
    CALLS,
    CLASSES,
    FUSED_ON_REQUEST,
    Effect,
    call_row,
    class_row,
    supports_amp_scaling,
    usual_receiver,
)


def test_every_name_stands_for_one_class() -> None:
    names = [name for row in CLASSES for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))


def test_every_call_is_listed_once_with_its_source() -> None:
    keys = [(row.owner, row.name) for row in CALLS]
    assert len(keys) == len(set(keys))
    assert all(row.effects and row.source.count(", ") >= 2 for row in CALLS)


def test_methods_belong_to_known_classes() -> None:
    owners = {row.owner for row in CALLS if row.owner.rpartition(".")[2][:1].isupper()}
    assert owners == {row.name for row in CLASSES}


def test_aliases_lead_to_the_same_row() -> None:
    row = call_row("accelerate.accelerator.Accelerator.backward")
    assert row is call_row("accelerate.Accelerator.backward")
    assert row is not None and row.effects == (Effect.SCALE, Effect.BACKWARD)


@pytest.mark.parametrize("dotted", [None, "torch.nn.Module.backward", "accelerate.Accelerator.log"])
def test_other_calls_have_no_row(dotted: str | None) -> None:
    assert call_row(dotted) is None


def test_usual_names() -> None:
    found = usual_receiver("accelerator", "backward")
    assert found is not None and found.owner == "accelerate.Accelerator"
    assert usual_receiver("model", "backward") is None
    assert usual_receiver("accelerator", "print") is None


def test_own_scalers() -> None:
    row = class_row("timm.utils.NativeScaler")
    assert row is not None and row.owns_scaler
    assert class_row("torch.amp.GradScaler") is None


@pytest.mark.parametrize("name", sorted(vars(torch.optim)))
def test_fused_optimizers_are_those_of_torch(name: str) -> None:
    """An optimizer takes `fused` and then unscales in `step`, or the table does not have it."""
    kind = vars(torch.optim)[name]
    if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
        return
    if kind is torch.optim.Optimizer or name == "SparseAdam":
        return
    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    try:
        built = kind([parameter], fused=True)
    except TypeError:
        assert f"torch.optim.{name}" not in FUSED_ON_REQUEST
        return
    fused = getattr(built, "_step_supports_amp_scaling", False)
    assert supports_amp_scaling(f"torch.optim.{name}", fused=True) is fused
    assert not supports_amp_scaling(f"torch.optim.{name}", fused=False)
    assert not getattr(kind([parameter]), "_step_supports_amp_scaling", False)


def test_the_table_needs_no_torch() -> None:
    assert "torch" not in vars(libraries)
