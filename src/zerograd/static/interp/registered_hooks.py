"""Hooks that clip: methods of the project that a call names, and of which it cannot be seen whether they are registered.

`for callback in self.callbacks: callback.on_backward_end(self)` and `task.run_hooks("on_backward_end")` run a clip if
an object of a class with such a method is registered. Hooks that clear, fill or step are not run here: without them,
the rest of the code would be another program.
"""

from __future__ import annotations

import ast

from zerograd.core.records import dataclass, replace
from zerograd.explore.flow import Alt, Flow, Seq
from zerograd.explore.logic import Opaque
from zerograd.static.interp.emitter import Emitter
from zerograd.static.interp.environment import Environment, Nesting
from zerograd.static.interp.functions import Functions
from zerograd.static.read import vocabulary
from zerograd.static.read.values import Fn, Thing


@dataclass(eq=False)
class RegisteredHooks:
    """Runs the hooks of the project that may be registered, and that clip."""

    env: Environment
    emitter: Emitter
    nesting: Nesting
    functions: Functions

    def run(self, node: ast.Call, hooks: list[Fn]) -> list[Flow]:
        """What these hooks do, unless the call was followed to them: each as if it were registered, and not."""
        ran: list[Flow] = []
        for fn in hooks:
            if fn.node in self.nesting.inlined and fn.node not in self.nesting.hooks:
                continue
            self.nesting.hooks.add(fn.node)
            assert fn.klass is not None
            owner = Thing(self.env.frame.new_key(node), klass=fn.klass)
            out = self.emitter.divert()
            self.functions.call(replace(fn, owner=owner), _handed(node))
            arm = Seq(tuple(self.emitter.restore(out)))
            test = Opaque(f"{fn.klass.node.name} is registered")
            ran.append(Alt(test, arm, Seq(()), self.emitter.site(node)))
        return ran


def _handed(node: ast.Call) -> ast.Call:
    """The call of a hook: with what the call hands over, or with the object that is asked to run its hooks."""
    func = node.func
    if isinstance(func, ast.Attribute) and not vocabulary.names_hook(func.attr):
        made = ast.Call(func, [func.value], [])
        return ast.copy_location(made, node)
    return node
