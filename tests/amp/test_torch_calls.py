"""The rows of what torch takes, beside the signatures of the torch that runs the tests."""

from __future__ import annotations

import inspect
import pkgutil

import pytest

from amplint.amp.torch_calls import CALLS, FUNCTIONS, OPTIMIZER, PLATEAU, SCHEDULER, _parameters

torch = pytest.importorskip("torch")


def classes_of(dotted: str) -> list[type]:
    """The classes that a row stands for: all optimizers, all schedulers, or the one it names."""
    if dotted == OPTIMIZER:
        names = (item for item in vars(torch.optim).values() if isinstance(item, type))
        return [item for item in names if item is not torch.optim.LBFGS]
    schedulers = torch.optim.lr_scheduler
    if dotted == SCHEDULER:
        made = (item for item in vars(schedulers).values() if isinstance(item, type))
        known = (item for item in made if issubclass(item, schedulers.LRScheduler))
        return [item for item in known if item is not schedulers.ReduceLROnPlateau]
    return [pkgutil.resolve_name(dotted)]


@pytest.mark.parametrize(
    ("dotted", "method"), [(dotted, method) for dotted, row in CALLS.items() for method in row]
)
def test_what_a_row_refuses_torch_refuses_too(dotted: str, method: str) -> None:
    """Each parameter of torch stands in the row at its place, and only what torch requires is required."""
    row = list(_parameters(CALLS[dotted][method]).values())
    for owner in classes_of(dotted):
        function = getattr(owner, "forward" if method == "__call__" else method)
        own = list(inspect.signature(function).parameters.values())[1:]
        assert not any(item.kind is item.VAR_KEYWORD for item in own), owner
        places = [item.name for item in own if item.kind is item.POSITIONAL_OR_KEYWORD]
        assert [item.name for item in row][: len(places)] == places, owner
        assert {item.name for item in own} <= {item.name for item in row}, owner
        required = {item.name for item in own if item.default is item.empty}
        assert {item.name for item in row if item.required} <= required, owner


def test_the_rows_of_schedulers_and_optimizers_hold_for_many() -> None:
    assert len(classes_of(OPTIMIZER)) > 8
    assert len(classes_of(SCHEDULER)) > 8
    assert classes_of(PLATEAU) == [torch.optim.lr_scheduler.ReduceLROnPlateau]


@pytest.mark.parametrize("dotted", FUNCTIONS)
def test_torch_takes_no_more_than_a_row_says(dotted: str) -> None:
    """Each parameter stands in the row, and what the row requires torch requires."""
    function = pkgutil.resolve_name(dotted)
    is_class = isinstance(function, type)
    own = list(inspect.signature(function.__init__ if is_class else function).parameters.values())
    own = own[1:] if is_class else own
    assert not any(item.kind in (item.VAR_KEYWORD, item.VAR_POSITIONAL) for item in own)
    row = _parameters(FUNCTIONS[dotted]).values()
    assert {item.name for item in own} <= {item.name for item in row}
    required = {item.name for item in own if item.default is item.empty}
    assert {item.name for item in row if item.required} <= required
    places = [item.name for item in own if item.kind is item.POSITIONAL_OR_KEYWORD]
    assert [item.name for item in row][: len(places)] == places


@pytest.mark.parametrize("dotted", [name for name in FUNCTIONS if ".functional." in name])
def test_a_function_of_torch_takes_a_tensor_and_not_none(dotted: str) -> None:
    function = pkgutil.resolve_name(dotted)
    more = "target" in _parameters(FUNCTIONS[dotted])
    with pytest.raises((TypeError, AttributeError)):
        function(None, torch.zeros(1)) if more else function(None)
