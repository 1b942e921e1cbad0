"""What findings say about one program: the scale, the flag that decides, the names of the code."""

from __future__ import annotations

import textwrap

import pytest

from tests.fixtures_runner import FIXTURES

from .page_examples import findings_of

LOOP = """
import torch
import torch.nn.functional as F

def train(model, loader, opt_d, cfg, {parameters}):
    {setup}
    for inputs, targets in loader:
        opt_d.zero_grad()
        loss = F.mse_loss(model(inputs), targets)
{body}
"""
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
WRONG_CLIP = f"scaler.scale(loss).backward()\n{CLIP}\nscaler.step(opt_d)\nscaler.update()"


def program(body: str, setup: str = "pass", parameters: str = "scaler") -> str:
    text = textwrap.indent(textwrap.dedent(body), " " * 8)
    return LOOP.format(body=text, setup=setup, parameters=parameters)


def built(arguments: str) -> str:
    return program(WRONG_CLIP, f"scaler = torch.amp.GradScaler('cuda'{arguments})", "scale=2.0")


def messages(source: str, code: str) -> list[str]:
    return [finding.message for finding in findings_of(source, code) if finding.code == code]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (built(""), "65536 at first"),
        (built(", init_scale=1024.0"), "1024 at first"),
        (built(", 2.0**10"), "1024 at first"),
        (built(", init_scale=cfg.scale"), "65536 by default"),
        (program(WRONG_CLIP), "65536 by default"),
    ],
)
def test_the_scale_is_that_of_the_constructor(source: str, words: str) -> None:
    (message,) = messages(source, "AMP110")
    assert message.endswith(words)


def test_that_the_file_is_run_is_no_flag() -> None:
    source = program(WRONG_CLIP).replace("def train(model, loader, opt_d, cfg, scaler):", "{head}")
    script = """
model, loader = torch.nn.Linear(2, 2), [(torch.randn(3, 2), torch.randn(3, 2))]
opt_d = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
if __name__ == "__main__":"""
    (message,) = messages(source.replace("{head}", script), "AMP110")
    assert " when " not in message


def test_a_flag_that_decides_is_named() -> None:
    body = """
        scaler.scale(loss).backward()
        if cfg.early:
            scaler.unscale_(opt_d)
        scaler.unscale_(opt_d)
        scaler.step(opt_d)
        scaler.update()
    """
    (message,) = messages(program(body), "AMP108")
    assert "when `cfg.early`" in message


def test_a_flag_that_does_not_decide_is_not_named() -> None:
    body = """
        scaler.scale(loss).backward()
        if cfg.verbose:
            scaler.unscale_(opt_d)
        else:
            scaler.unscale_(opt_d)
        scaler.unscale_(opt_d)
        scaler.step(opt_d)
        scaler.update()
    """
    (message,) = messages(program(body), "AMP108")
    assert "cfg.verbose" not in message


def test_what_leaves_the_update_out_is_named_and_not_the_switch_around_both() -> None:
    body = """
        if cfg.half:
            scaler.scale(loss).backward()
            scaler.unscale_(opt_d)
            if loss > cfg.largest:
                continue
            else:
                scaler.step(opt_d)
                scaler.update()
        else:
            loss.backward()
            opt_d.step()
    """
    (message,) = messages(program(body), "AMP108")
    assert "when `loss > cfg.largest`" in message
    assert "cfg.half" not in message


def test_an_update_behind_a_plain_step_is_what_fails() -> None:
    body = "scaler.scale(loss).backward()\nopt_d.step()\nscaler.update()"
    (message,) = messages(program(body), "AMP112")
    assert "`scaler.update()` on line 12 raises `AssertionError" in message
    (message,) = messages(program("scaler.scale(loss).backward()\nopt_d.step()"), "AMP112")
    assert "AssertionError" not in message


def test_the_help_names_the_optimizer_of_the_step() -> None:
    (finding,) = [f for f in findings_of(program(WRONG_CLIP), "AMP110") if f.code == "AMP110"]
    assert "`scaler.unscale_(opt_d)`" in finding.help


def test_clips_that_wait_for_one_unscale_are_one_finding() -> None:
    twice = WRONG_CLIP.replace(CLIP, f"{CLIP}\n{CLIP.replace('model', 'model.head')}")
    assert len(messages(program(twice), "AMP110")) == 1


def test_a_step_elsewhere_that_leaves_its_gradients_is_told() -> None:
    source = """
import torch.nn.functional as F

def train(model, loader, optimizer, scaler, window):
    optimizer.zero_grad()
    for epoch in range(3):
        for index, (inputs, targets) in enumerate(loader):
            scaler.scale(F.mse_loss(model(inputs), targets)).backward()
            if (index + 1) % window == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        if len(loader) % window != 0:
            scaler.step(optimizer)
            scaler.update()
"""
    (message,) = messages(source, "AMP116")
    assert message.startswith("another step on line 14 leaves its gradients in `.grad`")


@pytest.mark.parametrize(
    ("fixture", "code", "row", "advised", "not_advised"),
    [
        ("AMP103/bad_duplicated_flush.py", "AMP103", 26, "drop this flush", "len(loader)"),
        ("AMP103/bad_no_guard.py", "AMP103", 17, "incomplete window", "drop this flush"),
        ("AMP402/bad_dtypes.py", "AMP402", 33, "where the dtype is float16", "enabled="),
        ("AMP503/bad_region.py", "AMP503", 9, "finfo(scores.dtype).min", ".max"),
        ("AMP503/bad_region.py", "AMP503", 18, ").max", ").min"),
    ],
)
def test_the_help_is_about_this_code(
    fixture: str, code: str, row: int, advised: str, not_advised: str
) -> None:
    source = (FIXTURES / fixture).read_text()
    (help_,) = (
        item.help
        for item in findings_of(source, code)
        if item.code == code and item.span.start.row == row
    )
    assert advised in help_
    assert not_advised not in help_


def test_the_model_that_is_trained_is_named_not_what_moves_its_batch() -> None:
    file = FIXTURES / "AMP507" / "bad_batch_is_moved_first.py"
    (message,) = messages(file.read_text("utf-8"), "AMP507")
    assert "`net(...)`" in message


GAN = """
import torch
import torch.nn.functional as F

def train(maker, judge, noises, scaler):
    opt_maker = torch.optim.Adam(maker.parameters())
    opt_judge = torch.optim.Adam(judge.parameters())
    for noise in noises:
        made = maker(noise)
        first = F.softplus(judge(made)).mean()
        scaler.scale(first).backward()
        {step}
        second = F.softplus(-judge(made)).mean()
        scaler.scale(second).backward()
        scaler.step(opt_maker)
        scaler.update()
"""


@pytest.mark.parametrize(
    ("step", "help"),
    [
        ("scaler.step(opt_judge)", "use `made.detach()` in `first`"),
        ("pass", "add the losses and call backward once: `first + second`"),
    ],
)
def test_two_steps_want_two_graphs(step: str, help: str) -> None:
    (finding,) = [f for f in findings_of(GAN.format(step=step), "AMP123") if f.code == "AMP123"]
    assert finding.help == help


def test_the_help_names_the_loss_of_the_code() -> None:
    body = "penalty = loss * 2\npenalty.backward()\nscaler.step(opt_d)\nscaler.update()"
    source = program(body, "scaler = torch.amp.GradScaler('cuda')", "extra")
    (finding,) = findings_of(source, "AMP101")
    assert "`scaler.scale(penalty).backward()`" in finding.help


@pytest.mark.parametrize(("test", "named"), [("True", False), ("cfg.clips", True)])
def test_a_constant_test_is_no_condition(test: str, named: bool) -> None:
    body = "scaler.scale(loss).backward()\nif {}:\n    {}\nscaler.step(opt_d)\nscaler.update()"
    (message,) = messages(program(body.format(test, CLIP)), "AMP110")
    assert (f"when `{test}`" in message) is named
    assert (" when " in message) is named


@pytest.mark.parametrize(
    "body",
    [
        "scaled = scaler.scale(loss)\nscaled.backward()\nopt_d.step()",
        "(scaler.scale(loss) if cfg.amp else loss).backward()\nopt_d.step()",
        "loss = scaler.scale(loss)\nloss.backward()\nopt_d.step()",
    ],
)
def test_the_help_names_the_scaler_and_not_what_it_scaled(body: str) -> None:
    source = program(body, "scaler = torch.amp.GradScaler('cuda')", "amp=True")
    (found,) = [item for item in findings_of(source, "AMP112") if item.code == "AMP112"]
    assert found.help.startswith("replace `opt_d.step()` by `scaler.step(opt_d)`")
