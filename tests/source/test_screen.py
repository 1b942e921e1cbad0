"""The screen: what mentions AMP in any spelling is kept, everything else may go."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplint import rules
from amplint.amp import names
from amplint.amp.roles import scaler_name
from amplint.checker import check_source
from amplint.config import Settings
from amplint.source.screen import mentions_amp


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda.amp import GradScaler",
        "from torch.amp import *",
        "import torch.amp",
        "torch.cuda.amp.custom_fwd",
        "from apex import amp",
        "torch.autocast('cuda')",
        "AutoCast",
        "self.scaler.step(optimizer)",
        "gradSCALER = None",
        "loss_scaler",
        "ShardedGradScaler()",
        "x.unscale_(optimizer)",
        "if amp:",
        "AMP",
        "x  # noqa: AMP110",
        "x  # noqa: amp1",
        "x  # amplint: ignore[clip-without-unscale]",
        "loss = F.binary_cross_entropy(p, y)",
        "nn.BCELoss()",
        "TrainingArguments(fp16=True)",
        "Accelerator(mixed_precision='FP16')",
        "scores.masked_fill(mask, -1e9)",
        "scores.masked_fill(mask, NEG_INF)",
        "scores.masked_fill_(mask[:, None], value=-limits.large)",
        "class Project(torch.autograd.Function):",
        "loss = -torch.log(torch.sigmoid(x) + 1e-8)",
        "def f(x, eps=1e-8): return x / (x.abs().amax() + eps)",
        "torch.sqrt(2 - 2 * torch.mm(a, b) + 1.0E-12)",
        "from torch.autograd import Function",
        "x = 1\0",
    ],
)
def test_kept(text: str) -> None:
    assert mentions_amp(text.encode())
    assert mentions_amp(b"\xef\xbb\xbfx = 1\r\n" + text.encode("utf-8") + b"\n\xff")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch",
        "example = sample(stamp, ramp, amplitude, damp)",
        "scale = 2; rescale(scale); x.unscale()",
        "use_amp = True",
        "F.binary_cross_entropy_with_logits(x, y); nn.BCEWithLogitsLoss()",
        "TrainingArguments(output_dir)",
        "scores.masked_fill(mask, float('-inf'))",
        "scores.masked_fill(mask, -math.inf)",
        "scores.masked_fill(mask, 0)",
        "-torch.log(torch.sigmoid(x) + 1e-4)",
        "torch.sigmoid(x) / (y + 1e-4); torch.log1p(y)",
        "x  # noqa: F401",
        "# -*- coding: utf-8 -*-",
        "# -*- coding: latin-1 -*-",
        "# vim: set fileencoding=ascii :",
        "x = 'coding: utf-7'",
    ],
)
def test_screened_out(text: str) -> None:
    assert not mentions_amp(text.encode())


@pytest.mark.parametrize("codec", ["utf-7", "unicode_escape", "utf-16", "shift_jis", "cp037"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_an_encoding_that_can_hide_words_is_kept(codec: str, newline: str) -> None:
    assert mentions_amp(f"#!/bin/python{newline}# coding: {codec}{newline}x = 1".encode())


@pytest.mark.parametrize(
    "name", sorted(names.GRAD_SCALERS | names.SHARDED_GRAD_SCALERS | names.AUTOCASTS)
)
def test_every_name_of_the_interface_is_kept(name: str) -> None:
    assert mentions_amp(f"import {name}".encode())


@given(st.text(st.sampled_from("sScCaAlLeErR_gd1G"), max_size=14))
def test_every_name_of_a_scaler_is_kept(name: str) -> None:
    assert mentions_amp(name.encode()) or not scaler_name(name)


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("fixtures/**/*.py")))
def test_a_file_with_findings_is_kept(path: Path) -> None:
    data = path.read_bytes()
    # Only a file that the screen drops is checked: for the others there is nothing to show.
    assert mentions_amp(data) or not check_source("a.py", data, Settings(select=("ALL",))).findings


def test_every_page_example_is_kept() -> None:
    for code in set(rules.TABLE) - {"AMP000"}:
        page = rules.load(code).__doc__
        example = page.partition("## Example")[2].partition("```python\n")[2].partition("```")[0]
        assert mentions_amp(example.encode()), code
