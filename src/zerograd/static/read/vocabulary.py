"""The vocabulary of training code: what names of functions, classes and methods say.

What a certain library's calls do is in its table in `static.frameworks`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import SCHEDULER

USUAL = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "optim": "torch.optim"}
"""What these names mean where a star import hides their origin."""

OBJECT_METHODS = frozenset(
    {"parameters", "named_parameters", "train", "eval", "zero_grad", "state_dict", "load_state_dict",
     "param_groups", "no_sync", "modules"}
)  # fmt: skip
"""Whatever these are called on is an object, not the result of a computation."""

HELD_METHODS = frozenset({"parameters", "named_parameters", "zero_grad", "step", "param_groups"})
"""Whatever these are called on is, or holds, a model or an optimizer."""

OPTIMIZER_CLASSES = re.compile(
    r"(SGD|Adam\w*|AdamW\w*|RMSprop\w*|Adagrad|Adadelta|Adamax|LBFGS|Rprop|ASGD|SparseAdam|NAdam|RAdam"
    r"|Lion\w*|LAMB|Lamb|LARS|Lars|Adafactor|AdaBelief|Ranger\w*|NovoGrad|Yogi|Lookahead|SAM|ASAM"
    r"|\w*(SGD|Adam|AdamW)(8bit)?|\w*Optim(izer)?)$"
)
FACTORIES = re.compile(r"(^|_)(optim(izer)?s?|opt)($|_)|optimizer", re.IGNORECASE)
PASS_THROUGH = frozenset(
    {
        "to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "apply", "type",
        "requires_grad_", "share_memory", "xpu", "npu", "compile", "module", "to_device",
    }
)  # fmt: skip
"""Methods that give back the object they are called on."""

CUT = frozenset({"detach", "item", "numpy", "tolist", "data", "detach_", "shape", "size", "argmax"})
"""Methods and attributes behind which no gradient flows."""

BENIGN = re.compile(
    r"save|log|eval|valid|test|print|dump|record|write|writer|checkpoint|summar|load|state|adjust"
    r"|(^|_)lr|sched|warm|monitor|info|count|isinstance|len|hasattr|getattr|id$|type$|str$|repr|format"
    r"|plot|display|metric|progress|device|dict|append|barrier|watch|seed|param|config|callback|mode"
    r"|collect|report|track|meter|lambda|context|ctx",
    re.IGNORECASE,
)
"""Unseen functions with such names read the optimizer, but leave its gradients alone."""

MEDDLES = re.compile(
    r"zero|grad|optim|step|update|backward|train|reset|clear|hook|before|after|begin|start|(^|_)on_|pre|post"
    r"|fit|learn|run|iter|exec|process|handle|init|setup|finish|end|call",
    re.IGNORECASE,
)
"""Unseen methods with such names may do something to the gradients of what their object holds."""

KEEPS = re.compile(r"attach|privac|private|patch", re.IGNORECASE)
"""Unseen functions with such names change for good what the step of an optimizer does."""

LOSS = re.compile(r"loss|cost|^err", re.IGNORECASE)
"""What is called so is a loss: one number."""

CLEARS = re.compile(r"(zero|clear|reset|clean)_?grad", re.IGNORECASE)
"""Unseen functions with such names clear gradients, whosever they are."""

RIVALS = frozenset(
    {"mxnet", "paddle", "tinygrad", "tensorflow", "keras", "jittor", "oneflow", "mindspore", "cntk",
     "chainer", "jax", "theano", "needle", "minitorch", "micrograd", "autograd", "cupy", "warp"}
)  # fmt: skip
"""A file that imports one of these and not torch is not about torch."""

WINDOW = re.compile(r"accum|micro", re.IGNORECASE)
"""A number of such a name says how many micro-batches a window has."""


@lru_cache(maxsize=4096)
def role_of_call(name: str) -> Role:
    """The role of what a constructor or factory of this dotted name gives back."""
    last = name.rsplit(".", 1)[-1]
    if last in registry.CLASSES:
        return registry.CLASSES[last]
    if SCHEDULER.search(last) or "lr_scheduler" in name or "swa_utils" in name:
        return Role.OTHER
    if OPTIMIZER_CLASSES.match(last) or name.startswith("torch.optim."):
        return Role.OPTIMIZER
    if (
        last[:1].islower()
        and FACTORIES.search(last)
        and not re.search(r"param|step|state|name|zero", last)
    ):
        return Role.OPTIMIZER
    return Role.NONE


@lru_cache(maxsize=4096)
def role_of_use(text: str, methods: frozenset[str]) -> Role:
    """The role of an unseen object, from its name and from what is called on it in the file."""
    last = re.split(r"[.\[]", text.replace("]", ""))
    name = next((part for part in reversed(last) if part.strip("'\"0123456789-:* ")), text)
    return registry.role_of_use(name, methods)
