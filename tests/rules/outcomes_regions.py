"""The same for the rules about autocast regions."""

from __future__ import annotations

from .page_examples import Changes, Outcome, Run


def _loss_movement(run: Run, reference: Run) -> float:
    """How far the loss moved over the steps on one batch, relative to the good example."""
    moved = (abs(one.names["losses"][-1] - one.names["losses"][0]) for one in (run, reference))
    return next(moved) / next(moved)


def _head_difference(run: Run, reference: Run) -> float:
    """Relative difference of the gradients of the layer that computes in float32."""
    ours, theirs = (one.names["head"].weight.grad for one in (run, reference))
    return ((ours - theirs).norm() / theirs.norm()).item()


def _update_difference(run: Run, reference: Run) -> float:
    """Relative difference of the stepped parameters' updates."""
    ours, theirs = (
        one.names["model"].weight.detach() - next(iter(one.before.values()))
        for one in (run, reference)
    )
    return ((ours - theirs).norm() / theirs.norm()).item()


def _output_width(run: Run, reference: Run) -> float:
    """Bytes of each element of the outputs, relative to the good example: 2 is float32 for half."""
    sizes = (one.names["outputs"].element_size() for one in (run, reference))
    return next(sizes) / next(sizes)


OUTCOMES: dict[str, Outcome] = {
    "AMP205": Changes(2.0, 2.0, measure=_output_width, reference="good"),
    "AMP304": Changes(0.0, 0.0, measure=_loss_movement, reference="good"),
    "AMP306": Changes(0.5, 0.5, measure=_output_width, reference="good"),
    "AMP501": Changes(5e-4, 1e-2, measure=_head_difference, reference="good"),
    "AMP507": Changes(5e-4, 1e-1, measure=_update_difference, reference="good"),
}
