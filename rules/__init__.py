"""The rule table: one code, one module. `amplint rule CODE` prints a module's page.

A module lies in the folder of its family, which the first digit of its code names.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from amplint import plugins

#: The first digit of a code -> the folder of the family.
FAMILIES: dict[str, str] = {
    "0": "files",
    "1": "protocol",
    "2": "guards",
    "3": "gradients",
    "4": "dtypes",
    "5": "autocast",
    "6": "libraries",
    "8": "api",
    "9": "files",
}

#: code -> module name in the folder of its family, sorted by code.
TABLE: dict[str, str] = {
    "AMP000": "unreadable_file",
    "AMP101": "step_without_scaled_backward",
    "AMP102": "step_after_zero_grad",
    "AMP103": "leftover_step",
    "AMP104": "step_twice",
    "AMP105": "missing_update",
    "AMP106": "update_without_inf_check",
    "AMP107": "update_between_steps",
    "AMP108": "unscale_twice",
    "AMP109": "backward_after_unscale",
    "AMP110": "clip_without_unscale",
    "AMP111": "gradient_read_while_scaled",
    "AMP112": "optimizer_step_bypasses_scaler",
    "AMP113": "unscaled_backward",
    "AMP114": "scaled_loss_dropped",
    "AMP115": "scaled_loss_reused",
    "AMP116": "scaler_every_micro_batch",
    "AMP117": "scaler_optimizer_mismatch",
    "AMP118": "closure_with_scaler",
    "AMP119": "scaler_recreated",
    "AMP120": "scaler_not_checkpointed",
    "AMP121": "scheduler_ignores_skipped_step",
    "AMP122": "except_misses_inf_check",
    "AMP123": "graph_reused",
    "AMP124": "step_on_idle_optimizer",
    "AMP125": "gradient_guard_incomplete",
    "AMP126": "skip_test_after_update",
    "AMP127": "clip_after_step",
    "AMP128": "private_scaler_state",
    "AMP129": "overflow_is_fatal",
    "AMP130": "missing_step",
    "AMP131": "overflow_keeps_scale",
    "AMP201": "guard_mismatch",
    "AMP202": "missing_mixed_precision_guard",
    "AMP203": "amp_always_on",
    "AMP204": "enabled_flags_disagree",
    "AMP205": "autocast_device_mismatch",
    "AMP206": "float16_without_scaler",
    "AMP207": "scaler_without_autocast",
    "AMP208": "positional_enabled",
    "AMP209": "amp_arguments",
    "AMP210": "emulated_bfloat16_selected",
    "AMP211": "mixed_tf32_apis",
    "AMP212": "autocast_not_entered",
    "AMP301": "no_grad_on_trainable_path",
    "AMP302": "loss_detached",
    "AMP303": "grad_mode_leak",
    "AMP304": "training_loop_under_one_autocast",
    "AMP305": "no_grad_fills_autocast_cache",
    "AMP306": "autocast_re_entered",
    "AMP307": "scaler_first_used_in_inference_mode",
    "AMP401": "float16_parameters_with_scaler",
    "AMP402": "bfloat16_with_scaler",
    "AMP403": "half_under_autocast",
    "AMP404": "loss_target_dtype",
    "AMP405": "shared_weights_cast",
    "AMP406": "low_precision_trained_weights",
    "AMP407": "low_precision_average",
    "AMP501": "backward_under_autocast",
    "AMP502": "bce_under_autocast",
    "AMP503": "half_overflow_constant",
    "AMP504": "half_eps_underflow",
    "AMP505": "custom_function_without_custom_fwd",
    "AMP506": "data_parallel_loses_autocast_dtype",
    "AMP507": "step_under_autocast",
    "AMP509": "low_precision_positions",
    "AMP512": "recompute_outside_autocast",
    "AMP601": "accelerate_with_own_scaler",
    "AMP602": "lightning_with_own_scaler",
    "AMP603": "trainer_float16_weights",
    "AMP604": "fsdp_plain_scaler",
    "AMP605": "both_half_precisions",
    "AMP606": "fused_optimizer_semantics",
    "AMP608": "lightning_clip_while_scaled",
    "AMP609": "accelerate_plain_clip",
    "AMP611": "accelerate_clip_each_micro_batch",
    "AMP612": "library_plain_backward",
    "AMP613": "accelerate_zero_grad_each_micro_batch",
    "AMP801": "deprecated_amp_api",
    "AMP802": "apex_amp",
    "AMP900": "unused_suppression",
}


@cache
def load(code: str) -> ModuleType:
    """Import the module of a rule, of this package or of an installed one.

    Raises:
        KeyError: there is no rule with this code.
    """
    if code not in TABLE:
        return plugins.load(code)
    return importlib.import_module(f"amplint.rules.{FAMILIES[code[3]]}.{TABLE[code]}")


def known() -> dict[str, str]:
    """The codes of all rules, with those of installed packages, and the names of their modules."""
    return {**TABLE, **{code: plugin.module for code, plugin in plugins.installed().items()}}
