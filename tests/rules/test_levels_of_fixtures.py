"""How severe findings are where a fixture shows more than one level, or one below the rule's."""

from __future__ import annotations

import pytest

from amplint.checker import check_paths
from amplint.config import Settings
from tests.fixtures_runner import FIXTURES

LEVELS = {
    ("AMP106/bad_swallowed.py", "AMP106"): {16: "info", 34: "warning"},
    ("AMP108/bad_expected_by_its_text.py", "AMP108"): {15: "info", 34: "error"},
    ("AMP502/bad_context_by_name.py", "AMP502"): {8: "info"},
    ("AMP502/bad_context_of_a_library.py", "AMP502"): {11: "error"},
    ("AMP206/bad_scaler_by_factory", "AMP206"): {9: "warning"},
    ("AMP402/bad_by_option.py", "AMP402"): {
        11: "info",
        24: "info",
        42: "info",
        56: "info",
        76: "info",
    },
    ("AMP405/bad_other_names.py", "AMP405"): {
        20: "info",
        37: "info",
        51: "info",
        74: "info",
    },
    ("AMP503/bad_trainer_elsewhere", "AMP503"): {
        20: "error",
        28: "error",
        36: "error",
    },
    ("AMP503/bad_out_of_sight", "AMP503"): {9: "info"},
    ("AMP502/bad_asks_its_input.py", "AMP502"): {12: "info", 18: "error"},
    ("AMP503/bad_asks_its_input.py", "AMP503"): {10: "info", 13: "error"},
    ("AMP116/bad_window_of_the_data.py", "AMP116"): {14: "info"},
    ("AMP107/bad_class_that_nobody_builds", "AMP107"): {30: "info", 39: "warning"},
    ("AMP209/bad_scale_where_it_is_on.py", "AMP209"): {12: "info", 16: "error", 20: "error"},
    ("AMP209/bad_refused_and_expected.py", "AMP209"): {
        9: "info",
        16: "error",
        26: "info",
        34: "error",
    },
    ("AMP106/bad_step_of_what_may_be_none.py", "AMP106"): {21: "warning", 32: "info"},
    ("AMP106/bad_none_by_an_earlier_test.py", "AMP106"): {23: "info"},
    ("AMP611/bad_cleared_before_each.py", "AMP611"): {17: "info", 30: "error"},
    ("AMP119/bad_in_float32.py", "AMP119"): {7: "info"},
    ("AMP119/bad_before_what_raises.py", "AMP119"): {12: "info", 29: "info"},
    ("AMP119/bad_in_bfloat16.py", "AMP119"): {7: "info"},
    ("AMP119/bad_in_a_region_that_is_off.py", "AMP119"): {10: "info"},
    ("AMP124/bad_behind_tests.py", "AMP124"): {32: "info", 39: "warning"},
    ("AMP110/bad_region_refused_first.py", "AMP110"): {16: "info"},
    ("AMP110/bad_few_steps.py", "AMP110"): {15: "info"},
    ("AMP110/bad_few_steps_kept.py", "AMP110"): {15: "error"},
    ("AMP110/bad_many_steps.py", "AMP110"): {19: "error"},
    ("AMP112/bad_adam_in_float32.py", "AMP112"): {15: "info"},
    ("AMP119/bad_settings_are_a_dict.py", "AMP119"): {19: "info", 30: "warning"},
    ("AMP206/bad_scaler_is_none.py", "AMP206"): {10: "warning"},
}


@pytest.mark.parametrize(("fixture", "code"), list(LEVELS))
def test_levels(fixture: str, code: str) -> None:
    path = FIXTURES / fixture
    root = path if path.is_dir() else path.parent
    settings = Settings(select=(code,), project_root=str(root), cache=False, jobs=1)
    found = check_paths([str(path)], settings).findings
    assert {item.span.start.row: item.severity.value for item in found} == LEVELS[fixture, code]
