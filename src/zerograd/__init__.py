"""zerograd makes gradient handling in PyTorch training loops right, and visibly right.

Importing it costs nothing: each public name is loaded when it is first used, and only `Stepper` loads torch.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from zerograd.core.finding import Finding as Finding
    from zerograd.core.finding import Report as Report
    from zerograd.runtime.watch import GradientError as GradientError
    from zerograd.runtime.watch import GradientWarning as GradientWarning
    from zerograd.runtime.watch import Watch as watch  # noqa: N813, it is called like a function
    from zerograd.runtime.watch import allow as allow
    from zerograd.runtime.watch import expect_window as expect_window
    from zerograd.static.check_file import check_text as check_source
    from zerograd.stepper import Stepper as Stepper

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "GradientError",
    "GradientWarning",
    "Report",
    "Stepper",
    "__version__",
    "allow",
    "check_source",
    "expect_window",
    "watch",
]

_HOME = {
    "Finding": ("zerograd.core.finding", "Finding"),
    "GradientError": ("zerograd.runtime.watch", "GradientError"),
    "GradientWarning": ("zerograd.runtime.watch", "GradientWarning"),
    "Report": ("zerograd.core.finding", "Report"),
    "Stepper": ("zerograd.stepper", "Stepper"),
    "allow": ("zerograd.runtime.watch", "allow"),
    "check_source": ("zerograd.static.check_file", "check_text"),
    "expect_window": ("zerograd.runtime.watch", "expect_window"),
    "watch": ("zerograd.runtime.watch", "Watch"),
}


if not TYPE_CHECKING:
    # A type checker would take this for a promise that every name exists.
    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'zerograd' has no attribute {name!r}")
        from importlib import import_module

        module, attribute = _HOME[name]
        value = getattr(import_module(module), attribute)
        globals()[name] = value
        return value


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext zerograd` calls."""
    from zerograd.integrations.notebook import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """What `%unload_ext zerograd` calls."""
    from zerograd.integrations.notebook import unload

    unload(shell)


def __dir__() -> list[str]:
    return __all__
