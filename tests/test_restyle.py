"""Restyled programs do the same under torch, and amplint's answers about them do not get worse.

`docs/restyling.md` has the table over all fixtures. Here is a fixed sample, with floors.
"""

from __future__ import annotations

import ast
import importlib
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Fixtures of the sample, small ones that many styles apply to.
BAD = (
    "AMP101/bad_reset_then_flush.py",
    "AMP104/bad_filled_dict.py",
    "AMP106/bad_micro_batch.py",
    "AMP114/bad_stored.py",
    "AMP119/bad_steps_elsewhere",
    "AMP405/bad_evaluation.py",
    "incidents/2_flush_method/before",
    "projects/partial_attribute.py",
    "projects/scaled_loss_passed",
)
GOOD = (
    "AMP103/good_counter_reset.py",
    "AMP104/good_fraction_checked.py",
    "projects/guards_tied_by_caller",
    "silent/01_callable_wrapper/stepper_class.py",
    "silent/04_scaled_threshold/scaled_max_norm.py",
    "silent/09_split_protocol/phases.py",
    "silent/10_several_optimizers/adversarial.py",
    "silent/18_bce_in_full_precision/detector.py",
    "silent/26_indirection/factory_elsewhere",
)
#: Which of them are run under torch, in the original and restyled.
EXECUTED = (
    "incidents/2_flush_method/before",
    "projects/partial_attribute.py",
    "silent/09_split_protocol/phases.py",
    "silent/26_indirection/factory_elsewhere",
)

#: Style: how many of BAD it applies to, how many of these are found at least, and how many of GOOD
#: are accused at most. Raise the second and lower the third whenever they allow it.
FLOORS: dict[str, tuple[int, int, int]] = {
    "unchanged": (9, 9, 0),
    "neutral-locals": (9, 8, 0),
    "neutral-locals-called": (2, 2, 0),
    "neutral-attributes": (5, 5, 0),
    "no-annotations": (1, 1, 0),
    "helper-here": (9, 8, 0),
    "helper-elsewhere": (9, 8, 0),
    "plain-second-file": (7, 6, 0),
    "callback": (9, 8, 0),
    "overridden-method": (9, 8, 0),
    "in-with": (9, 9, 0),
    "in-try": (9, 9, 0),
    "import-module": (3, 3, 0),
    "import-alias": (8, 7, 0),
    "import-names": (8, 8, 0),
    "import-reexport": (8, 8, 0),
    "import-star": (8, 8, 0),
    "import-attribute": (8, 8, 0),
    "built-as-tuple": (7, 7, 0),
    "built-as-dict": (7, 7, 0),
    "built-as-dataclass": (7, 7, 0),
    "attribute-chain": (7, 7, 0),
    "wrapper-class": (3, 3, 0),
    "in-sequential": (1, 1, 0),
    "in-module-list": (1, 1, 0),
    "moved-in-constructor": (1, 1, 0),
    "keyword-arguments": (9, 9, 0),
    "positional-arguments": (0, 0, 0),
    "star-arguments": (5, 5, 0),
    "dict-arguments": (5, 5, 0),
    "partial": (5, 4, 0),
    "flags-from-dataclass": (1, 1, 0),
    "flags-from-argparse": (1, 1, 0),
    "flags-from-click": (1, 1, 0),
    "flags-from-dict": (1, 1, 0),
    "flags-from-yaml": (1, 1, 0),
    "flags-from-constants": (1, 1, 0),
    "flags-from-module": (1, 1, 0),
    "comments": (9, 9, 0),
    "docstrings": (9, 9, 0),
    "dead-code": (9, 9, 0),
}

#: Ways in which correct code was once accused, beside the mistakes that they look like.
ALARMS = (
    "AMP102/good_some_cleared.py",
    "AMP103/good_count_from_anywhere.py",
    "AMP103/bad_count_from_anywhere.py",
    "AMP109/good_round_out_of_sight.py",
    "AMP109/bad_round_without_model.py",
    "AMP112/good_gradient_of_its_own.py",
    "AMP112/bad_gradient_shared.py",
    "AMP113/good_switch_of_one_scaler.py",
    "AMP113/bad_switch_of_one_scaler.py",
    "AMP202/good_copied_options.py",
    "AMP202/bad_copied_options.py",
    "AMP202/good_raises_before.py",
    "AMP202/bad_raises_here.py",
    "AMP209/good_property.py",
    "AMP209/bad_property.py",
    "AMP304/bad_loop_inside.py",
    "AMP304/bad_nothing_is_kept.py",
    "AMP402/bad_by_option.py",
    "AMP405/good_evaluation.py",
    "AMP405/good_library_casts_back.py",
    "AMP405/good_other_objects.py",
    "AMP405/bad_evaluation.py",
    "AMP405/bad_other_names.py",
    "AMP501/good_branch_of_the_switch.py",
    "AMP501/bad_branch_of_another_switch.py",
    "AMP503/good_never_built",
    "AMP503/bad_trainer_elsewhere",
)

#: Rewrites that change nothing and once changed an answer, beside programs that they look like.
ROWS = (
    "AMP101/good_asks_for_gradients.py",
    "AMP101/bad_asks_for_parameters.py",
    "AMP101/good_same_condition.py",
    "AMP101/bad_almost_the_same_condition.py",
    "AMP105/good_neutral_name.py",
    "AMP109/good_abstract_steps.py",
    "AMP112/good_switch_is_the_scaler.py",
    "AMP114/bad_constructor_below.py",
    "AMP115/bad_annotated.py",
    "AMP204/bad_behind_true.py",
)

#: Correct fixtures that were accused in one style alone.
MENDED: dict[str, tuple[str, ...]] = {
    "attribute-chain": ("AMP202/good_unbound_in_try.py",),
    "built-as-dataclass": (
        "AMP201/good_disabled_scaler.py",
        "AMP113/good_copy_adapted.py",
    ),
    "built-as-dict": (
        "AMP201/good_tied_by_definition.py",
        "silent/25_forgotten_shapes/24_plain_side_network.py",
        "silent/26_indirection/given_to_unknown_code",
        "AMP113/good_copy_adapted.py",
    ),
    "built-as-tuple": (
        "AMP201/good_disabled_scaler.py",
        "AMP113/good_copy_adapted.py",
        "AMP604/good_optimizer_of_old_parameters.py",
    ),
    "callback": (
        "AMP611/good_once.py",
        "AMP123/good_two_rounds",
        "AMP207/good_model_casts",
        "AMP118/good_foreign_scaler.py",
        "AMP201/good_tied_by_definition.py",
        "AMP301/good_modes.py",
        "AMP401/good_adapters.py",
        "AMP403/good_casts.py",
        "silent/10_several_optimizers/made_on_one_line.py",
        "silent/25_forgotten_shapes/08_scaler_made_in_setup.py",
        "silent/25_forgotten_shapes/21_dead_code_and_asserts.py",
        "silent/26_indirection/counter_elsewhere",
        "silent/26_indirection/flag_list_elsewhere",
        "silent/26_indirection/given_to_unknown_code",
        "silent/26_indirection/method_completed_elsewhere",
        "AMP202/good_needs_cuda_anyway.py",
        "silent/26_indirection/lambda_elsewhere",
    ),
    "dict-arguments": (
        "AMP104/good_limit_of_all_callers.py",
        "silent/09_split_protocol/phases.py",
    ),
    "helper-elsewhere": (
        "AMP109/good_round_out_of_sight.py",
        "AMP301/good_under_a_wrapper.py",
        "AMP113/good_scaled_everything.py",
        "AMP115/good_own_scale.py",
        "AMP118/good_foreign_scaler.py",
        "AMP119/good_steps_elsewhere",
        "AMP301/good_modes.py",
        "AMP401/good_unscaling_replaced.py",
        "silent/01_callable_wrapper/split_files",
        "silent/26_indirection/flag_list_elsewhere",
        "silent/26_indirection/given_to_unknown_code",
        "AMP106/good_own_switches.py",
        "AMP112/good_sparse.py",
    ),
    "helper-here": (
        "AMP106/good_own_switches.py",
        "AMP801/good_called_for_older",
        "AMP401/good_config_override",
        "AMP115/good_own_scale.py",
        "AMP118/good_foreign_scaler.py",
        "silent/01_callable_wrapper/split_files",
        "silent/26_indirection/flag_list_elsewhere",
    ),
    "import-alias": (
        "AMP110/good_scaler_or_stand_in.py",
        "AMP116/good_counter_behind_a_name.py",
        "AMP801/good_fallbacks",
        "silent/17_scalers_per_model/by_torch_version.py",
    ),
    "import-attribute": ("AMP801/good_guarded_under_another_name.py",),
    "import-reexport": ("AMP801/good_guarded_under_another_name.py",),
    "in-try": (
        "AMP202/good_built_by_helper.py",
        "AMP202/good_needs_cuda_anyway.py",
        "AMP202/good_raises_before.py",
    ),
    "in-with": (
        "AMP110/good_reads_unbound.py",
        "AMP202/good_built_by_helper.py",
    ),
    "neutral-locals": (
        "AMP102/good_other_optimizer.py",
        "AMP119/good_whole_training.py",
        "AMP206/good_branches.py",
        "AMP207/good_off_or_chosen.py",
        "silent/25_forgotten_shapes/14_clip_lookalikes.py",
        "silent/26_indirection/partial_elsewhere",
        "silent/26_indirection/partial_passed.py",
    ),
    "neutral-locals-called": ("AMP206/good_branches.py",),
    "overridden-method": (
        "AMP801/good_called_for_older",
        "AMP118/good_foreign_scaler.py",
        "AMP301/good_modes.py",
        "silent/26_indirection/method_completed_elsewhere",
        "AMP202/good_needs_cuda_anyway.py",
    ),
    "partial": (
        "AMP101/good_split_protocol.py",
        "AMP108/good_update_in_plain_file",
        "AMP125/good_helper",
        "AMP202/good_attrs_elsewhere",
        "AMP401/good_config_override",
        "AMP401/good_unscaling_replaced.py",
        "projects/guards_tied_by_caller",
        "projects/parameters_tied_by_caller",
        "incidents/2_flush_method/after",
        "silent/26_indirection/list_filled_by_helper.py",
    ),
    "plain-second-file": (
        "silent/25_forgotten_shapes/14_clip_lookalikes.py",
        "silent/26_indirection/given_to_unknown_code",
        "AMP106/good_own_switches.py",
        "AMP113/good_copy_adapted.py",
    ),
    "star-arguments": (
        "AMP104/good_limit_of_all_callers.py",
        "silent/09_split_protocol/phases.py",
    ),
    "wrapper-class": (
        "AMP106/good_own_switches.py",
        "AMP110/good_looked_up.py",
    ),
}


def _import(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "scripts"))
        sys.path.remove(str(ROOT))


restyle = _import("restyle")
judging = _import("restyling.judging")
programs = _import("restyling.program")
execution = _import("restyling.execution")
real = _import("restyling.real")
listed = _import("restyling.listed")
STYLES = _import("restyling.table").STYLES


def fixture_of(name: str):
    """The fixture with this name."""
    (found,) = (one for one in judging.fixtures(name) if one.name == name)
    return found


@pytest.mark.parametrize("style", STYLES)
def test_answers_do_not_get_worse(style: str) -> None:
    row = restyle.Row.of(style, [judging.judge(style, fixture_of(one)) for one in BAD + GOOD])
    applied, found, accused = FLOORS[style]
    assert row.bad == applied
    assert row.found >= found
    assert row.accused <= accused


@pytest.mark.parametrize("style", ["neutral-locals", "in-with", "dead-code", "import-names"])
@pytest.mark.parametrize("name", ALARMS + ROWS)
def test_an_old_alarm_does_not_come_back_in_other_clothes(name: str, style: str) -> None:
    verdict = judging.judge(style, fixture_of(name))
    assert verdict.applied or style == "import-names"  # where a file imports modules alone
    assert (verdict.missed, verdict.accused) == ((), ())


@pytest.mark.parametrize(
    ("style", "name"), [(style, name) for style, names in MENDED.items() for name in names]
)
def test_an_alarm_of_one_style_does_not_come_back(style: str, name: str) -> None:
    verdict = judging.judge(style, fixture_of(name))
    assert verdict.applied
    assert not verdict.accused


@pytest.fixture
def one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("style", STYLES)
def test_behaviour_stays(style: str) -> None:
    for name in EXECUTED:
        fixture = fixture_of(name)
        try:
            program = judging.restyled(style, fixture)
        except programs.DoesNotApplyError:
            continue
        compared, notes = execution.differences(fixture, program)
        assert compared
        assert not notes


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("old", "new"), [("lr=", "lr=2 * "), ("update()", "get_scale()")])
def test_another_behaviour_is_noticed(old: str, new: str) -> None:
    fixture = fixture_of("silent/09_split_protocol/phases.py")
    ((name, text),) = fixture.program.texts.items()
    assert old in text
    changed = fixture.program.with_texts({name: text.replace(old, new)})
    assert execution.differences(fixture, changed)[1]


@pytest.mark.parametrize("name", BAD + GOOD)
def test_unchanged_programs_are_judged_as_in_the_fixtures(name: str) -> None:
    verdict = judging.judge("unchanged", fixture_of(name))
    assert (verdict.missed, verdict.accused) == ((), ())


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="since Python 3.12 `symtable` lists names of comprehensions with the function around them",
)
@pytest.mark.parametrize("name", BAD + GOOD)
def test_scopes_agree_with_python(name: str) -> None:
    """The names that every function binds, as the compiler sees them."""
    for file in fixture_of(name).program.python:
        expected = sorted(_functions(symtable.symtable(file.text, file.name, "exec")))
        found = sorted(
            (node.name, tuple(sorted(scope.names - set(scope.elsewhere))))
            for node, scope in file.scopes.by_node.items()
            if isinstance(node, ast.FunctionDef)
        )
        assert found == expected


#: What `symtable` calls functions without a name.
NAMELESS = frozenset({"lambda", "listcomp", "setcomp", "dictcomp", "genexpr"})


def _functions(table: symtable.SymbolTable) -> Iterator[tuple[str, tuple[str, ...]]]:
    for child in table.get_children():
        if child.get_type() == "function" and child.get_name() not in NAMELESS:
            yield child.get_name(), tuple(sorted(child.get_locals()))
        yield from _functions(child)


MOVED = """\
import torch


def train(model, loader, scaler, optimizer):
    total = 0
    for inputs in loader:
        loss = model(inputs)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.step(optimizer)  # AMP104
        scaler.update()
        total += loss
    return total
"""


def restyled(style: str, text: str = MOVED) -> dict[str, str]:
    """The texts of a program of one file in another style."""
    return dict(STYLES[style](programs.Program({"train.py": text})).texts)


@pytest.mark.parametrize(
    ("style", "file", "lines"),
    [
        ("helper-here", "train.py", ["def part_1(scaler, optimizer, loss, total):"]),
        ("helper-here", "train.py", ["total = part_1(scaler, optimizer, loss, total)"]),
        ("helper-elsewhere", "moved_parts.py", ["    scaler.step(optimizer)  # AMP104"]),
        ("helper-elsewhere", "train.py", ["from moved_parts import part_1"]),
        ("callback", "train.py", ["for listener in CALLBACKS_1:"]),
        ("overridden-method", "train.py", ["        raise NotImplementedError"]),
        ("neutral-locals", "train.py", ["def train(v1, v2, v3, v4):", "        v5 += v7"]),
        ("in-with", "train.py", ["    with contextlib.nullcontext():"]),
        ("in-try", "train.py", ["    finally:"]),
    ],
)
def test_rewrites(style: str, file: str, lines: list[str]) -> None:
    found = [line.partition("  # leads")[0] for line in restyled(style)[file].splitlines()]
    for line in lines:
        assert line in found or line.strip() in [one.strip() for one in found]


def test_a_moved_expectation_is_met_at_its_call_only() -> None:
    program = programs.Program(restyled("helper-elsewhere"))
    wanted = judging.marks(program)
    (mark,) = wanted
    ((name, row, code),) = judging._answers(program, wanted)[mark] - wanted
    assert (name, code) == ("train.py", "AMP104")
    assert "part_1(" in program.texts[name].splitlines()[row - 1]


NOT_MOVED = [
    pytest.param("    return model", id="a return leaves the function"),
    pytest.param("    yield scaler.step(optimizer)", id="a yield makes a generator"),
    pytest.param("    if late:\n        seen = 1\n    scaler.step(seen)", id="perhaps unbound"),
    pytest.param("    global seen\n    seen = scaler.step(optimizer)", id="a global"),
]


@pytest.mark.parametrize("body", NOT_MOVED)
def test_statements_that_must_stay(body: str) -> None:
    text = f"def train(model, scaler, optimizer, late):\n{body}  # AMP101\n"
    file = programs.source_of("train.py", text)
    (function,) = file.tree.body
    blocks = sys.modules["restyling.blocks"]
    assert blocks.extract(file, function, function.body[-1:]) is None


def test_does_not_apply_with_a_reason() -> None:
    with pytest.raises(programs.DoesNotApplyError, match="no literal switch"):
        restyled("flags-from-yaml")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--style", "nonsense"], 2),
        (["--fixture", "nonsense"], 2),
        (["--style", "unchanged", "--fixture", "AMP101/bad_reset"], 0),
    ],
)
def test_exit_status(arguments: list[str], status: int) -> None:
    assert restyle.main(arguments) == status


# -- real files, and what is listed ---------------------------------------------------------------


def test_each_listed_violation_has_a_reason() -> None:
    known = {line.split("\t")[0] for line in real.LIST.read_text("utf-8").splitlines()}
    for (kind, program, style, _), reason in listed.listed().items():
        assert kind in ("miss", "alarm")
        assert style in STYLES
        assert "/".join(program.split("/")[:2]) in known or (ROOT / "fixtures" / program).exists()
        assert len(reason) > 20


def test_nothing_new_and_nothing_gone_in_a_sample() -> None:
    """All fixtures in all styles are too many here: `restyle.py --listed` has them."""
    chosen = judging.fixtures()[7::640]
    verdicts = [judging.judge(style, fixture) for fixture in chosen for style in STYLES]
    assert listed.compared(verdicts) == ([], [])


def test_what_is_not_listed_and_what_is_no_more() -> None:
    fixture = fixture_of("AMP104/bad_filled_dict.py")
    (known, *_) = listed.listed()
    named = judging.Fixture(known[1], fixture.program, ())
    missed = judging.Verdict("in-with", fixture, missed=("train.py:3 AMP104",))
    silent = judging.Verdict(known[2], named)
    new, gone = listed.compared([missed, silent])
    assert new == [("miss", fixture.name, "in-with", "AMP104")]
    assert known in gone
    again = judging.Verdict(known[2], named, **{_FIELD[known[0]]: (f"a.py:1 {known[3]}",)})
    assert listed.compared([again])[0] == []


_FIELD = {"miss": "missed", "alarm": "accused"}


def test_real_files_are_judged_by_what_is_said_of_them_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = tmp_path / "checkouts" / f"a__b@{'1' * 12}"
    checkout.mkdir(parents=True)
    (checkout / "train.py").write_text(MOVED.replace("  # AMP104", ""))
    (tmp_path / "real.tsv").write_text(f"# words\na/b\t{'1' * 40}\ttrain.py\n")
    monkeypatch.setattr(real, "LIST", tmp_path / "real.tsv")
    (found,) = real.real_files([tmp_path / "checkouts"])
    (mark,) = judging.marks(found.program)
    assert (found.name, mark[2], found.is_bad) == ("a/b/train.py", "AMP104", True)
    arguments = ["--real", str(tmp_path / "checkouts"), "--listed", "--style", "helper-here"]
    assert restyle.main(arguments) == 0
    assert "| helper-here | 0 | 1 | 1 (100.0%) |" in capsys.readouterr().out
    assert restyle.main(["--real", str(tmp_path)]) == 2
