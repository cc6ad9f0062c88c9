"""The subcommands of `zerograd`: one module each, one line here."""

COMMANDS = {
    "check": "find gradient-handling bugs in files and directories",
    "run": "run a script unchanged and watch its gradients",
    "merge": "merge the findings of a run's ranks into one report",
    "replay": "check the recording of a run again, without torch",
    "report": "make a web page of a recorded run: findings, timeline, gradient norms",
    "server": "show findings in an editor, by the Language Server Protocol",
    "mcp": "serve coding agents: check, explain and fix as tools (Model Context Protocol)",
    "enable": "let the variable ZEROGRAD watch every program of this environment",
    "disable": "undo zerograd enable",
    "explain": "print a rule's page, or list all rules",
    "doctor": "say what is installed, and what can be checked and watched here",
    "learn": "a course on gradients, computed while you read",
}
"""Each subcommand and its purpose."""
