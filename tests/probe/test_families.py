"""Rules that are no transition of the protocol: each shows its own fixture, by real torch.

`expected` is what torch does with the lines, worked out by hand: which findings of the file a
run on stand-ins can prove, in order. The rest of a file's findings is not asked about.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from amplint.findings import Evidence
from amplint.probe.confirmation import plan_builder
from amplint.probe.prober import Prober
from amplint.probe.process import Worker

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"


def probe(name: str, worker: Worker, row: int) -> Evidence:
    path = FIXTURES / name
    # Without a root the project is this whole repository, which is searched for callers.
    settings = Settings(project_root=str(path.parent))
    code = name[:6]
    (finding,) = [
        finding
        for finding in check_paths([str(path)], settings).findings
        if finding.code == code and finding.span.start.row == row
    ]
    builder = plan_builder(finding.filename, settings)
    assert builder is not None
    prober = Prober(builder, worker.run, runs=150, seconds=120.0, torch="")
    return prober.probe(finding).evidence


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("AMP104/bad_plain_step_after.py", 14, "applied again in line 14"),
        ("AMP112/bad_after_unscale.py", 15, "not finite reach the weights in line 15"),
        ("AMP119/bad_passed_on.py", 19, "scalers that line 19 built stepped one optimizer"),
        ("AMP127/bad_after_scaler_step.py", 15, "every step is the same without the clip"),
        ("AMP208/bad_defined_as_bool.py", 7, "enabled with a scale of 0"),
        ("AMP209/bad_device_string.py", 7, "`RuntimeError: Expected one of cpu, cuda"),
        ("AMP301/bad_block.py", 9, "does not require grad"),
        ("AMP301/bad_block.py", 36, "4 of the 8 trainable parameters of the AdamW (line 30)"),
        ("AMP301/bad_block.py", 52, "with gradients left on in line 52 they are"),
        ("AMP302/bad_copies.py", 9, "`ValueError: outputs must be a Tensor"),
        ("AMP302/bad_copies.py", 19, "does not require grad"),
        ("AMP302/bad_copies.py", 28, "does not require grad"),
        ("AMP302/bad_copies.py", 49, "No inf checks were recorded"),
        ("AMP303/bad_statement.py", 18, "needs `epochs` >= 2"),
        ("AMP304/bad_one_batch.py", 15, "still computes with the old weights"),
        ("AMP306/bad_stored.py", 22, "autocast is not as it was before"),
        ("AMP307/bad_validation_first.py", 16, "Inference tensors cannot be saved for backward"),
        ("AMP402/bad_dtypes.py", 11, "the same with the scaler disabled"),
        ("AMP403/bad_weights.py", 9, "updates parameters in float16"),
        ("AMP405/bad_evaluation.py", 23, "Attempting to unscale FP16 gradients"),
        ("AMP501/bad_in_block.py", 13, "inside the float16 autocast region of line 11"),
        ("AMP503/bad_region.py", 9, "cannot be converted to type"),
        ("AMP504/bad_adam.py", 9, "which is 0 in float16"),
        ("AMP507/bad_step_in_block.py", 15, "inside the bfloat16 autocast region"),
    ],
)
def test_confirmed(worker: Worker, name: str, row: int, words: str) -> None:
    evidence = probe(name, worker, row)
    assert evidence.status == "confirmed", evidence
    assert evidence.detail is not None
    assert words in evidence.detail


def test_a_cut_that_nothing_can_leave_out_is_conditional(worker: Worker) -> None:
    """The number goes through numpy: the counterfactual run cannot keep its graph."""
    evidence = probe("AMP302/bad_copies.py", worker, 61)
    assert evidence.status == "conditional"
    assert evidence.assumptions == ("nothing but line 61 causes it",)
