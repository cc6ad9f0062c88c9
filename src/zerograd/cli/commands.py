"""The commands of `zerograd`: a module each, with `add` (its words) and `run` (its answer).

A module is loaded when its command is asked for, so that the command line answers at once.
"""

COMMANDS = {
    "check": "find gradient-handling bugs in files and directories",
    "run": "run a script unchanged and watch its gradients",
    "merge": "tell what the ranks of a run have found as one report",
    "replay": "judge the recording of a run again, without torch",
    "report": "make a page of a recorded run: findings, timeline, gradient norms",
    "explain": "print a rule's page, or list all rules",
    "learn": "a course on gradients, computed while you look",
}
"""Each command, and what it is for in a few words."""
