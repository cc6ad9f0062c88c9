"""The words of training code: which names, constructors and methods speak of what.

A table, not code: everything here is vocabulary, and whoever meets a new word adds it here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from zerograd.static.frameworks.roles import Role

USUAL = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional", "optim": "torch.optim"}
"""What these names mean where a star import hides their origin."""

OBJECT_METHODS = frozenset(
    {"parameters", "named_parameters", "train", "eval", "zero_grad", "state_dict", "load_state_dict",
     "param_groups", "no_sync", "modules"}
)  # fmt: skip
"""Whatever these are called on is an object, not the result of a computation."""

HELD_METHODS = frozenset({"parameters", "named_parameters", "zero_grad", "step", "param_groups"})
"""Whatever these are called on is, or holds, a model or an optimizer."""

INTERESTING = frozenset(
    {
        "backward",
        "zero_grad",
        "step",
        "manual_backward",
        "unscale_",
        "requires_grad",
        "requires_grad_",
        "grad",
        "optimizer_step",
        "first_step",
        "second_step",
        "clip_grad_norm_",
        "clip_grad_value_",
        "clip_grad_norm",
        "scale_loss",
        "_foreach_zero_",
    }
)
"""A function that mentions none of these (nor calls one that does) does nothing to gradients."""

STEPPING = frozenset({"step", "optimizer_step", "first_step", "second_step"})
"""Where none of these is reached, nothing is stepped, but by hand."""

OPTIMIZER_CLASSES = re.compile(
    r"(SGD|Adam\w*|AdamW\w*|RMSprop\w*|Adagrad|Adadelta|Adamax|LBFGS|Rprop|ASGD|SparseAdam|NAdam|RAdam"
    r"|Lion\w*|LAMB|Lamb|LARS|Lars|Adafactor|AdaBelief|Ranger\w*|NovoGrad|Yogi|Lookahead|SAM|ASAM"
    r"|\w*(SGD|Adam|AdamW)(8bit)?|\w*Optim(izer)?)$"
)
FACTORIES = re.compile(r"(^|_)(optim(izer)?s?|opt)($|_)|optimizer", re.IGNORECASE)
SCHEDULER = re.compile(r"sched|(^|_)lr(_|$)|LR$|warmup|annealing|plateau", re.IGNORECASE)
OPTIMIZER_NAME = re.compile(
    r"(^|_)(opt|optim|optimi[sz]ers?|optims|opts)(\d|_|$)|optimi[sz]er", re.IGNORECASE
)
NOT_AN_OPTIMIZER = re.compile(
    r"sched|(^|_)lr|env(s|$|_)|state|param|config|cfg|args|name|path|option|optional|adopt|copt"
    r"|step|iter|freq|num|count|every|interval|epoch|size|rate|decay|fn$|func|cls|class|type|kwargs"
    r"|dict|group|lr$|loss|metric|flag|mode|kind|str$",
    re.IGNORECASE,
)
SCALER_NAME = re.compile(r"scaler$|(^|_)amp$", re.IGNORECASE)

CONSTRUCTORS = {
    "GradScaler": Role.SCALER,
    "ShardedGradScaler": Role.SCALER,
    "Accelerator": Role.ACCELERATOR,
    "Fabric": Role.FABRIC,
    "LightningLite": Role.FABRIC,
    "NativeScaler": Role.LOSS_SCALER,
    "NativeScalerWithGradNormCount": Role.LOSS_SCALER,
    "ApexScaler": Role.LOSS_SCALER,
    "ApexScalerAccum": Role.LOSS_SCALER,
}
"""Classes of known frameworks by their name."""

ACCELERATOR_METHODS = frozenset(
    {
        "prepare",
        "accumulate",
        "unwrap_model",
        "gather",
        "gather_for_metrics",
        "sync_gradients",
        "is_main_process",
        "wait_for_everyone",
        "clip_grad_norm_",
        "is_local_main_process",
    }
)
FABRIC_METHODS = frozenset(
    {"setup", "setup_dataloaders", "setup_module", "clip_gradients", "launch"}
)

PASS_THROUGH = frozenset(
    {
        "to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "apply", "type",
        "requires_grad_", "share_memory", "xpu", "npu", "compile", "module", "to_device",
    }
)  # fmt: skip
"""Methods that give back the object they are called on."""

WRAPPERS = re.compile(
    r"(DataParallel|DDP|FSDP|^compile"
    r"|convert_sync_batchnorm|initialize|fully_shard|script|parallelize\w*|to_device"
    r"|watch|unwrap_model|optimize|MMDataParallel|MMDistributedDataParallel)$"
)
"""Calls that give back what they are handed, wrapped."""

PREPARES = re.compile(r"(prepare|setup)")
"""Methods of accelerate and Fabric that give back what they are handed, wrapped."""

CUT = frozenset({"detach", "item", "numpy", "tolist", "data", "detach_", "shape", "size", "argmax"})
"""Methods and attributes behind which no gradient flows."""

CLIPS = frozenset(
    {"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grad_value", "clip_gradients",
     "clip_grads", "clip_grads_with_norm_", "clip_gradient", "clip_grad"}
)  # fmt: skip

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

CLEARS = re.compile(r"(zero|clear|reset|clean)_?grad", re.IGNORECASE)
"""Unseen functions with such names clear gradients, whosever they are."""

RIVALS = frozenset(
    {"mxnet", "paddle", "tinygrad", "tensorflow", "keras", "jittor", "oneflow", "mindspore", "cntk",
     "chainer", "jax", "theano", "needle", "minitorch", "micrograd", "autograd", "cupy", "warp"}
)  # fmt: skip
"""A file that imports one of these and not torch speaks another language."""

WINDOW = re.compile(r"accum|micro", re.IGNORECASE)
"""A number of such a name says how many micro-batches a window has."""

LIGHTNING_STEP = "training_step"


@lru_cache(maxsize=4096)
def role_of_call(name: str) -> Role:
    """The role of what a constructor or factory of this dotted name gives back."""
    last = name.rsplit(".", 1)[-1]
    if last in CONSTRUCTORS:
        return CONSTRUCTORS[last]
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
    if "backward" in methods:
        if methods & ACCELERATOR_METHODS or "accelerator" in name.lower():
            return Role.ACCELERATOR
        if methods & FABRIC_METHODS or "fabric" in name.lower():
            return Role.FABRIC
        if "step" in methods and "zero_grad" not in methods:
            return Role.ENGINE
    if "accelerator" in name.lower():
        return Role.ACCELERATOR
    if {"zero_grad", "step"} <= methods:
        return Role.OPTIMIZER
    if SCHEDULER.search(name):
        return Role.OTHER
    if methods & {"unscale_"} or ({"scale", "update"} <= methods) or {"scale", "step"} <= methods:
        return Role.SCALER
    if OPTIMIZER_NAME.search(name) and not NOT_AN_OPTIMIZER.search(name):
        return Role.OPTIMIZER
    if SCALER_NAME.search(name):
        return Role.SCALER
    return Role.NONE
