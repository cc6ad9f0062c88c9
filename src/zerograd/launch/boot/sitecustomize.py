"""Python imports this module at the start of every process that a watched program starts.

It runs the original `sitecustomize`, if there is one, and waits for the import of torch. A process
that never imports torch loads nothing else of zerograd.
"""

import os
import sys


def _run_original() -> None:
    """Run the original `sitecustomize`, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


class _TorchImport:
    """Comes first among the import finders, and acts on the import of torch only."""

    zerograd = True

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """Find torch, and let zerograd see its import."""
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            from zerograd.launch.child import listen
        except ImportError as error:
            message = (
                f"{sys.argv[0] or sys.executable} is not watched ({error}): install zerograd for"
            )
            sys.stderr.write(f"zerograd: {message} {sys.executable}\n")
            return None
        return listen().find_spec(name, path, target)


if os.environ.get("ZEROGRAD_RUN"):
    sys.meta_path.insert(0, _TorchImport())
_run_original()
