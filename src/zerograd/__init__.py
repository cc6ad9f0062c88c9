"""zerograd makes gradient handling in PyTorch training loops right, and visibly right.

Importing it costs nothing: each public name is loaded when it is first used, and none loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerograd.finding import Finding as Finding
    from zerograd.finding import Report as Report
    from zerograd.static.lint import check_text as check_source

__version__ = "0.1.0"

__all__ = ["Finding", "Report", "__version__", "check_source"]

_HOME = {
    "Finding": ("zerograd.finding", "Finding"),
    "Report": ("zerograd.finding", "Report"),
    "check_source": ("zerograd.static.lint", "check_text"),
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


def __dir__() -> list[str]:
    return __all__
