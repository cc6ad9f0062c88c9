"""Python imports this when it starts, in the processes that a watched program has started.

It hands on to the `sitecustomize` that it stands before, and waits for torch: a process that never
imports it loads nothing of zerograd.
"""

import os
import sys


def _hand_on() -> None:
    """Let the real one run, if there is one."""
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


class _Waiting:
    """Is asked first for every module, and knows of one."""

    zerograd = True

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """Where torch is, once somebody listens to its import."""
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
    sys.meta_path.insert(0, _Waiting())
_hand_on()
