"""The tour of `make demo`: a bug that causes no error message, and what zerograd reports.

Exits with 0 only if all output is as expected.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRONG = "examples/forgotten_zero_grad.py"
RIGHT = "examples/correct.py"


def say(text: str) -> None:
    """Print a paragraph, separate from the output of the commands."""
    print(f"\n{textwrap.fill(' '.join(text.split()), 90)}\n", flush=True)


def show(*command: str, exit_code: int, expect: str = "") -> bool:
    """Run a command and print its output. Returns whether exit code and output are as expected."""
    print(f"$ {' '.join(command)}", flush=True)
    program = {"python": [sys.executable], "zerograd": [sys.executable, "-m", "zerograd"]}
    # The output is captured here, so the command cannot see the terminal.
    color = ["--color", "always"] if command[0] == "zerograd" and sys.stdout.isatty() else []
    done = subprocess.run(
        [*program[command[0]], *command[1:2], *color, *command[2:]],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode == exit_code and expect in done.stdout:
        return True
    wanted = f"exit code {exit_code}" + (f" and {expect!r}" if expect else "")
    print(f"*** not as expected: {wanted}; the exit code was {done.returncode}", flush=True)
    return False


def main() -> int:
    """Give the tour."""
    say(f"""Two batches train one weight. {WRONG} forgets to clear the gradients between them;
        it runs without an error, but its second step uses 8 instead of 5:""")
    as_expected = [show("python", WRONG, exit_code=0, expect="8.0")]

    say("""zerograd reads the same file without running it. It points at the backward() that adds
        to old gradients and at the step() that had already used them (exit code 1: it found
        something):""")
    as_expected.append(show("zerograd", "check", WRONG, exit_code=1, expect="ZG101"))

    say("""It also runs the file unchanged and watches every gradient. That proves the bug: the
        second backward() added 5, and the step used 8:""")
    proof = "expected |grad| 5, got 8"
    as_expected.append(show("zerograd", "run", WRONG, exit_code=1, expect=proof))

    say(f"{RIGHT} clears the gradients, and zerograd reports nothing (exit code 0):")
    as_expected.append(show("zerograd", "check", RIGHT, exit_code=0))
    clean = "nothing to report"
    as_expected.append(show("zerograd", "run", RIGHT, exit_code=0, expect=clean))

    say("""All of examples/, one line for each finding. Correct files are not listed. The exit code
        is 1 because there are findings; in CI that fails a build:""")
    everything = ("zerograd", "check", "--format", "concise", "examples/")
    as_expected.append(show(*everything, exit_code=1, expect="ZG101"))

    if not all(as_expected):
        print("\nThe output was not as expected; see the lines marked *** above.")
        return 1
    say("""Now try your own code: .venv/bin/zerograd check PATH, or .venv/bin/zerograd run SCRIPT.
        .venv/bin/zerograd explain ZG101 shows a rule with a wrong and a right example.""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
