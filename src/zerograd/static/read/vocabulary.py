"""The vocabulary of training code: what names of functions, classes and methods say.

What a certain library's calls do is in its table in `static.frameworks`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks import registry
from zerograd.static.frameworks.table import Role
from zerograd.static.frameworks.torch import NOT_AN_OPTIMIZER, OPTIMIZER_NAME, SCHEDULER
from zerograd.static.read.syntax_tree import first_name, last_name

USUAL = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "optim": "torch.optim"}
"""What these names mean where a star import hides their origin."""

OBJECT_METHODS = frozenset(
    {"parameters", "named_parameters", "train", "eval", "zero_grad", "state_dict", "load_state_dict",
     "param_groups", "no_sync", "modules"}
)  # fmt: skip
"""Whatever these are called on is an object, not the result of a computation."""

HELD_METHODS = frozenset({"parameters", "named_parameters", "zero_grad", "step", "param_groups"})
"""Whatever these are called on is, or holds, a model or an optimizer."""

OPTIMIZER_CLASSES = pattern(
    r"(SGD|Adam\w*|AdamW\w*|RMSprop\w*|Adagrad|Adadelta|Adamax|LBFGS|Rprop|ASGD|SparseAdam|NAdam|RAdam"
    r"|Lion\w*|LAMB|Lamb|LARS|Lars|Adafactor|AdaBelief|Ranger\w*|NovoGrad|Yogi|Lookahead|SAM|ASAM"
    r"|\w*(SGD|Adam|AdamW)(8bit)?|\w*Optim(izer)?)$"
)
FACTORIES = pattern(r"(^|_)(optim(izer)?s?|opt)($|_)|optimizer", re.IGNORECASE)
PASS_THROUGH = frozenset(
    {
        "to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "apply", "type",
        "requires_grad_", "share_memory", "xpu", "npu", "compile", "module", "to_device",
    }
)  # fmt: skip
"""Methods that return the object they are called on."""

CUT = frozenset(
    {"detach", "item", "numpy", "tolist", "data", "detach_", "shape", "size", "argmax", "device", "dtype"}
)  # fmt: skip
"""Methods and attributes behind which no gradient flows."""

_START = r"(?:^|_|(?<=[a-z0-9])(?=[A-Z]))"
"""Where a part of a name begins: `criterion` has no `iter` in it, and `append` no `end`."""

_BENIGN = pattern(
    rf"{_START}(?i:(save|log|eval|valid|test|print|dump|record|write|checkpoint|ckpt|summar|load|stat|adjust"
    r"|sched|warm|monitor|info|count|is_?instance|has_?attr|get_?attr|repr|format|plot|display|metric"
    r"|progress|device|dict|append|barrier|watch|seed|param|config|callback|collect|report|track|meter"
    r"|lambda|context)|(lr|mode|len|id|type|str|ctx)(?=_|\d|$))"
    r"|(?i:(writer|logger|scalar|scalars|state|states|hidden|metrics)$)"
)
"""Unseen functions with such names read the optimizer, but leave its gradients alone."""

_DOES = pattern(
    rf"{_START}(?i:(zero|grad|optim|step|update|backward|train|reset|clear"
    r"|fit|learn|iter|exec|process|handle|init|setup|finish)|(run|call)(?=_|\d|$))"
)
"""Unseen methods with such names may do something to the gradients of what their object holds."""

_HOOKS = pattern(rf"{_START}(?i:(hook|before|after|begin|start|on_)|(pre|post|end)(?=_|\d|$))")
"""So may hooks, whose names only say when they are called."""

_WORKS = pattern(
    rf"{_START}(?i:(clean|flush|wipe|empty|minimi|apply|prepare|wrap)"
    r"|(do|on|make|build|create|forward|loss|closure|batch|epoch)(?=_|\d|$))"
)
"""Unseen functions with such names may do something to the gradients of an optimizer they are handed."""

KEEPS = pattern(r"attach|privac|private|patch", re.IGNORECASE)
"""Unseen functions with such names change for good what the step of an optimizer does."""

RUNS_BACKWARD = pattern(
    r"backward|^(?!set_).*train_(?!loss)|training(?!_loss)|_step$|closure|fit|learn|pipeline",
    re.IGNORECASE,
)
"""Unseen functions with such names may run the backward themselves."""

MODELS = pattern(
    r"(^|_)(models?|nets?|networks?|modules?|optim(izer)?s?|opts?|agent|trainer|learner|polic(y|ies)|actor|critic"
    r"|generator|discriminator|encoder|decoder|net[a-z]?|student|teacher|engine|runner|solver)\d*$",
    re.IGNORECASE,
)
"""What is called so is a model or an optimizer, or has them."""

LOSS = pattern(r"loss|cost|^err", re.IGNORECASE)
"""What is called so is a loss: one number."""

CLEARS = pattern(r"(zero|clear|reset|clean)_?grad", re.IGNORECASE)
"""Unseen functions with such names clear gradients of any object."""

RIVALS = frozenset(
    {"mxnet", "paddle", "tinygrad", "tensorflow", "keras", "jittor", "oneflow", "mindspore", "cntk",
     "chainer", "jax", "theano", "needle", "minitorch", "micrograd", "autograd", "cupy", "warp"}
)  # fmt: skip
"""A file that imports one of these and not torch is not about torch."""

WINDOW = pattern(r"accum|micro", re.IGNORECASE)
"""A number of such a name says how many micro-batches a window has."""


@lru_cache(maxsize=4096)
def is_benign(name: str) -> bool:
    """Whether an unseen function of this name only reads what it is handed.

    To remember it saves 1 % of a check of `bench/right`, as it does for the two roles below.
    """
    return _BENIGN.search(name) is not None


def is_called_object(name: str) -> bool:
    """Whether an attribute of this name that is called is a model, a criterion or a loss."""
    return bool(MODELS.search(name) or LOSS.search(name) or re.search(r"(^|_)crit", name))


def meddles(name: str) -> bool:
    """Whether an unseen method of this name may do something to gradients; one that gets something does nothing."""
    if name.startswith("get_"):
        return False
    found = _DOES.search(name) is not None or _HOOKS.search(name) is not None
    return found and not is_benign(name)


def names_hook(name: str) -> bool:
    """Whether code that runs hooks by name would call one so."""
    return name.startswith(("on_", "before_", "after_", "pre_", "post_")) and name.isidentifier()


def is_hook(name: str) -> bool:
    """Whether a name only says when a method is called: `on_epoch_end`, but also `on_master`."""
    return _HOOKS.search(name) is not None and _DOES.search(name) is None


def may_clear_model(name: str) -> bool:
    """Whether an unseen function of this name may clear the gradients of a model that it is handed.

    One that updates models moves weights (`ema.update(model)`), and one that clips or averages keeps gradients.
    """
    return meddles(name) and (CLEARS.search(name) is not None or not _KEEPS_GRADIENTS.search(name))


_KEEPS_GRADIENTS = pattern(r"clip|averag|avg|reduce|sync|gather|broadcast|update", re.IGNORECASE)


def clips(name: str) -> bool:
    """Whether a function of this name clips the gradients of the parameters that it is handed."""
    return _CLIPS.search(name) is not None


_CLIPS = pattern(r"(?:^|_)(?:clip_?(?:grad|norm)|grad(?:ient)?s?_?clip)")


def works_on_optimizers(name: str) -> bool:
    """Whether an unseen function of this name may clear or use what an optimizer steps."""
    return meddles(name) or _WORKS.search(name) is not None or name[:1].isupper()


def is_class_name(name: str) -> bool:
    """Whether a name is written like that of a class: `CE_loss` and `LOSS` are not."""
    return name[:1].isupper() and not name.isupper() and not _FUNCTION_NAME.search(name)


_FUNCTION_NAME = pattern(r"_(?!v\d)[a-z]")


@lru_cache(maxsize=4096)
def role_of_call(name: str) -> Role:
    """The role of what a constructor or factory of this dotted name returns."""
    last = last_name(name)
    if last in registry.CLASSES and registry.is_its_own(name):
        return registry.CLASSES[last]
    if SCHEDULER.search(last) or "lr_scheduler" in name or "swa_utils" in name:
        return Role.OTHER
    if OPTIMIZER_CLASSES.match(last) or name.startswith("torch.optim."):
        return Role.OPTIMIZER
    if (
        last.lstrip("_")[:1].islower()
        and FACTORIES.search(last)
        and not re.search(r"param|step|state|name|zero", last)
    ):
        return Role.OPTIMIZER
    return Role.NONE


def is_of_a_library(name: str) -> bool:
    """Whether a dotted name is that of a library whose schedulers only set rates."""
    return first_name(name) in _LIBRARIES


_LIBRARIES = frozenset({"torch", "transformers", "diffusers", "timm", "accelerate", "deepspeed"})


@lru_cache(maxsize=4096)
def role_of_use(text: str, methods: frozenset[str]) -> Role:
    """The role of an unseen object, from its name and from what is called on it in the file."""
    last = re.split(r"[.\[]", text.replace("]", ""))
    name = next((part for part in reversed(last) if part.strip("'\"0123456789-:* ")), text)
    role = registry.role_of_use(name, methods)
    if not role and text.endswith("]") and not methods.isdisjoint(("step", "zero_grad")):
        # `optimizers["critic"]` is what the collection is called.
        holder = re.split(r"[.\[]", text.partition("[")[0])[-1]
        if OPTIMIZER_NAME.search(holder) and not NOT_AN_OPTIMIZER.search(name):
            return registry.role_of_use(holder, methods)
    return role
