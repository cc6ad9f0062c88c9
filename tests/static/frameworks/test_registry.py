"""The registry: every table is asked, and what it says is found by name, role and use."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from zerograd.static.frameworks import registry
from zerograd.static.frameworks.accelerate import ACCELERATOR
from zerograd.static.frameworks.deepspeed import CLEARED, ENGINE
from zerograd.static.frameworks.lightning import FABRIC
from zerograd.static.frameworks.table import (
    Clears,
    Framework,
    Gives,
    LibraryCall,
    MayTouch,
    On,
    Role,
    RunsBackward,
    Steps,
    Use,
    Whose,
)
from zerograd.static.frameworks.timm import LOSS_SCALER
from zerograd.static.frameworks.torch import SCALER

FOLDER = Path(registry.__file__).parent
TABLES = sorted(
    path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "table", "registry")
)


@pytest.mark.parametrize("name", TABLES)
def test_every_file_of_the_folder_is_a_table_that_is_asked(name: str) -> None:
    table = import_module(f"zerograd.static.frameworks.{name}").TABLE
    assert isinstance(table, Framework)
    assert table in registry.FRAMEWORKS


def test_torch_is_asked_last() -> None:
    assert registry.FRAMEWORKS[-1].classes["GradScaler"] is SCALER


# By name and role


def effects(name: str, role: Role) -> list[type]:
    call = registry.call_on(name, role)
    return [type(effect) for effect in call.does] if call is not None else []


def test_a_method_is_found_by_the_role_of_its_object() -> None:
    assert effects("step", ENGINE) == [Steps, Clears]
    assert effects("step", SCALER) == [Steps]
    assert effects("step", ACCELERATOR) == []
    assert effects("backward", ACCELERATOR) == [RunsBackward]


def test_a_name_with_a_star_is_a_prefix() -> None:
    assert registry.call_on("prepare_model", ACCELERATOR) is not None
    assert registry.call_on("prepare", ACCELERATOR) is not None
    assert registry.call_on("unprepare", ACCELERATOR) is None
    assert registry.call_on("prepare_model", ENGINE) is None


def test_a_function_is_found_apart_from_a_method_of_the_same_name() -> None:
    function, method = registry.calls_named("optimizer_step")
    assert (function.on, method.on) == (On.MODULE, On.UNSEEN)
    assert [type(effect) for effect in method.does] == [Steps, MayTouch]


def test_what_a_library_makes_is_found_by_the_dotted_name() -> None:
    made = registry.made_by("deepspeed.initialize")
    assert made is not None
    assert made.items == (("", ENGINE), ("optimizer", Role.TAKEN), None, None)
    assert registry.made_by("amp.initialize") is None
    assert registry.WRAPPERS.search("initialize")


def test_a_bypassed_library_has_a_name_only_where_no_variable_names_it() -> None:
    assert registry.bypassed_name(ENGINE) == "the engine"
    assert registry.bypassed_name(ACCELERATOR) == ""
    assert registry.bypassed_name(Role.NONE) == ""


def test_names_of_calls_that_touch_gradients_are_gradient_names() -> None:
    assert {
        "first_step",
        "optimizer_step",
        "manual_backward",
        "zero_grad",
    } <= registry.GRADIENT_NAMES
    assert {
        "step",
        "first_step",
        "second_step",
        "optimizer_step",
        "update_params",
    } == registry.STEPS
    assert not registry.GRADIENT_NAMES & {"__call__", "scale", "update", "prepare*"}


# By use


@pytest.mark.parametrize(
    ("name", "methods", "role"),
    [
        ("accelerator", (), ACCELERATOR),
        ("acc", ("backward", "prepare"), ACCELERATOR),
        ("acc", ("prepare",), Role.NONE),
        ("fabric", ("backward",), FABRIC),
        ("fabric", (), Role.NONE),
        ("model", ("backward", "step"), ENGINE),
        ("model", ("backward", "step", "zero_grad"), CLEARED),
        ("optimizer", ("backward", "step", "zero_grad"), Role.OPTIMIZER),
        ("thing", ("zero_grad", "step"), Role.OPTIMIZER),
        ("lr_scheduler", ("step",), Role.OTHER),
        ("amp_helper", ("scale", "update"), SCALER),
        ("amp_helper", ("scale",), Role.NONE),
        ("optimizer", (), Role.OPTIMIZER),
        ("optimizer_state", (), Role.NONE),
        ("loss_scaler", (), SCALER),
        ("model", ("train",), Role.NONE),
    ],
)
def test_an_object_is_known_by_its_name_and_by_what_is_called_on_it(
    name: str, methods: tuple[str, ...], role: Role
) -> None:
    assert registry.role_of_use(name, frozenset(methods)) is role


def test_all_calls_that_decide_a_role_are_in_the_index() -> None:
    for framework in registry.FRAMEWORKS:
        for use in framework.uses:
            assert use.calls | use.any_of | use.none_of <= registry.TELLING


def test_a_use_without_a_name_fits_any_name() -> None:
    use = Use(LOSS_SCALER, calls=["run"], none_of=["stop"])
    assert use.fits("whatever", frozenset({"run", "go"}))
    assert not use.fits("whatever", frozenset({"run", "stop"}))
    assert not use.fits("whatever", frozenset())


# What a call needs


def test_a_call_that_does_something_to_its_owner_needs_one() -> None:
    assert LibraryCall("x", Steps()).needs_owner
    assert LibraryCall("x", Clears(Whose.FIRST)).needs_first
    plain = LibraryCall("x", RunsBackward(), gives=Gives.UNKNOWN)
    assert not plain.needs_owner
    assert not plain.needs_first
