"""torch itself: how its optimizers, schedulers and scalers are named and used, its clips and wrappers."""

from __future__ import annotations

import re

from zerograd.core.late_pattern import pattern
from zerograd.static.frameworks.table import (
    Context,
    ContextEffect,
    Framework,
    Gives,
    LibraryCall,
    MayTouch,
    On,
    Restores,
    Role,
    Steps,
    Unscales,
    Updates,
    Use,
    Whose,
)

SCALER = Role("scaler")
GRAPH = Role("captured graph")

SCHEDULER = pattern(r"sched|(^|_)lr(_|$)|LR$|warmup|annealing|plateau", re.IGNORECASE)
OPTIMIZER_NAME = pattern(
    r"(^|_)(opt|optim|optimi[sz]ers?|optims|opts)(\d|_|$)|optimi[sz]er", re.IGNORECASE
)
NOT_AN_OPTIMIZER = pattern(
    r"sched|(^|_)lr|env(s|$|_)|state|param|config|cfg|args|name|path|option|optional|adopt|copt"
    r"|step|iter|freq|num|count|every|interval|epoch|size|rate|decay|fn$|func|cls|class|type|kwargs"
    r"|dict|group|lr$|loss|metric|flag|mode|kind|str$|closure|(^|_)(ema|swa|avg|averag)",
    re.IGNORECASE,
)
_STEPS_TOO = pattern(
    r"sched|(^|_)lr|lr$|env(s|$|_)|closure|(^|_)(ema|swa|avg|averag)", re.IGNORECASE
)
"""Names of what is stepped and is no optimizer."""
SCALER_NAME = pattern(r"scaler$|(^|_)amp$", re.IGNORECASE)

TABLE = Framework(
    classes={"GradScaler": SCALER, "ShardedGradScaler": SCALER, "CUDAGraph": GRAPH},
    uses=[
        Use(Role.OPTIMIZER, calls=["zero_grad", "step"]),
        Use(Role.OTHER, named=SCHEDULER),
        Use(SCALER, calls=["unscale_"]),
        Use(SCALER, calls=["scale"], any_of=["update", "step"]),
        Use(Role.OPTIMIZER, named=OPTIMIZER_NAME, not_named=NOT_AN_OPTIMIZER),
        # `opt_model`, `classifier_optimizer`: what is stepped is no name, mode or class of an optimizer.
        Use(Role.OPTIMIZER, named=OPTIMIZER_NAME, not_named=_STEPS_TOO, any_of=["step", "zero_grad"]),
        Use(SCALER, named=SCALER_NAME),
        Use(GRAPH, calls=["replay"], named=pattern(r"graph|^g$", re.IGNORECASE)),
    ],
    calls=[
        LibraryCall("scale", on=SCALER, gives=Gives.SCALED_LOSS, always=True),
        LibraryCall("unscale_", Unscales(Whose.EACH_OF_FIRST), on=On.ANYTHING),
        LibraryCall("step", Steps(Whose.EACH_OF_FIRST, scaled=True), on=SCALER),
        LibraryCall("update", Updates(), on=SCALER, always=True),
        LibraryCall("replay", MayTouch(Whose.ANYONE), on=GRAPH),
        *(
            LibraryCall(name, Restores(), gives=Gives.UNKNOWN)
            for name in ("load_state_dict", "set_params", "set_parameters", "set_weights")
        ),
    ],
    contexts=[
        Context("no_grad", ContextEffect.NO_GRAD),
        Context("inference_mode", ContextEffect.NO_GRAD),
        Context("enable_grad", ContextEffect.GRAD),
        Context("set_grad_enabled", ContextEffect.GRAD),
        Context("no_sync", ContextEffect.LOCAL),
    ],
    wrappers=r"DataParallel|DDP|FSDP|^compile|convert_sync_batchnorm|fully_shard|script"
    r"|parallelize\w*|to_device",
    clips=[
        "clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grad_value",
        "clip_grads_with_norm_", "clip_grads", "clip_gradient", "clip_grad",
    ],
    unscales_to_clip=[SCALER],
    mentions=[
        "backward", "zero_grad", "step", "unscale_", "requires_grad", "requires_grad_", "grad", "_grad",
        "clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "_foreach_zero_",
    ],
)  # fmt: skip
