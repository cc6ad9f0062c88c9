"""The catalogue: one file per rule, one line here."""

from __future__ import annotations

from importlib import import_module

from zerograd.core.rule import Page, Rule
from zerograd.rules import unused_allow

_MODULES = (
    "stale_gradient",
    "discarded_gradient",
    "zero_in_window",
    "empty_step",
    "repeated_step",
    "foreign_gradient",
    "none_gradient",
    "orphan_gradient",
    "self_backward",
    "nonfinite_gradient",
    "untrained_parameter",
    "remade_optimizer",
    "clip_before_unscale",
    "clip_before_backward",
    "clip_after_step",
    "clip_in_window",
    "scaled_step",
    "mixed_scale",
    "missing_update",
    "unscaled_backward",
    "unscaled_window",
    "misplaced_guard",
    "dropped_window",
    "carried_window",
    "unsynced_step",
    "diverged_ranks",
    "wasted_sync",
    "bypassed_wrapper",
)

RULES: tuple[Rule, ...] = tuple(import_module(f"zerograd.rules.{name}").RULE for name in _MODULES)
"""The rules of the state machine, in the order of their codes."""

PAGES: tuple[Page, ...] = (unused_allow.PAGE, *RULES)
"""All that can be selected and explained, in the order of the codes."""

BY_CODE = {page.code: page for page in PAGES}
