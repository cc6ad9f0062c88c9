"""The stepper: it opens, fills and closes windows, and each step uses the gradient of its window.

NOTE [A loop that is left]
A window belongs to one loop. When the loop ends, its window is closed. When the loop is left, its
window is dropped: at once if Python closes the generator, and otherwise when the next loop begins.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from zerograd.stepper import validate
from zerograd.stepper.backward_pass import BackwardPass
from zerograd.stepper.batches import Current, Loop, batches_for
from zerograd.stepper.by_hand import ByHand, working
from zerograd.stepper.close_window import CloseWindow
from zerograd.stepper.gradients import Gradients
from zerograd.stepper.in_backward import InBackward
from zerograd.stepper.ownership import Ownership
from zerograd.stepper.sharing import ranks_of
from zerograd.stepper.step_record import Step
from zerograd.stepper.weights import Scalar, checked_weight
from zerograd.stepper.window import Window, WindowSize

T = TypeVar("T")


class Stepper:
    """Two lines in a training loop instead of zero, scale, accumulate, unscale, clip, step, update.

        stepper = Stepper(model, optimizer, accumulate=8, clip_norm=1.0)
        for batch in stepper(loader):
            loss = loss_fn(model(batch.x), batch.y)
            stepper.backward(loss, weight=len(batch.y))

    `weight` is the number of samples or tokens in the mean. Every step uses the gradient of the
    mean over its whole window, for windows of any length and any number of ranks.

    modules, optimizers: one or several; no parameter belongs to two optimizers.
    accumulate: the number of batches in a window. The end of the loader closes a window too.
    accumulate_weight: close a window when the weight of its batches, over all ranks, is at least
        this.
    clip_norm, clip_value: clip the gradient of the window.
    scaler: a torch.amp.GradScaler that no other stepper uses.
    scheduler: one or several; they step after the optimizer has stepped.
    reduction: "mean", or "sum" for losses that are sums over samples.
    skip_nonfinite: drop a window whose gradient contains inf or nan, on all ranks.
    accumulate_dtype: add up gradients in this dtype, for bf16 parameters.
    free_gradients: step inside backward and free each gradient at once, to save memory.
    sync: synchronise the "last" batch of a window, or "every" batch, which saves memory under FSDP2.
    group: the ranks over which gradients are averaged, if the parameters do not show it (a mesh
        with TP).

    `last_step` describes the last window, `history` the last thousand. A norm is computed only for
    clip_norm, scaler or skip_nonfinite.
    """

    def __init__(
        self,
        modules: nn.Module | Iterable[nn.Module],
        optimizers: Optimizer | Iterable[Optimizer],
        *,
        accumulate: int | None = None,
        accumulate_weight: float | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        scheduler: Any = None,
        reduction: Literal["mean", "sum"] = "mean",
        skip_nonfinite: bool = False,
        accumulate_dtype: torch.dtype | None = None,
        free_gradients: bool = False,
        sync: Literal["last", "every"] = "last",
        group: Any = None,
    ) -> None:
        validate.check_order(modules)
        trained = validate.as_list(modules, nn.Module, "modules")
        self._optimizers = validate.as_list(optimizers, Optimizer, "optimizers")
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        validate.check_optimizers(trained, self._optimizers, self._scaler)
        validate.check_window_size(accumulate, accumulate_weight)
        validate.check_clipping(clip_norm, clip_value)
        validate.check_choice("reduction", reduction, "mean", "sum")
        validate.check_choice("sync", sync, "last", "every")
        self._schedulers = validate.as_schedulers(scheduler)
        self._ranks = ranks_of(trained, validate.parameters(self._optimizers), group)
        self._size = WindowSize(accumulate, accumulate_weight, self._ranks)
        if accumulate_dtype is not None:
            validate.check_accumulate_dtype(scaled=self._scaler is not None, ranks=self._ranks)
        if free_gradients:
            validate.check_free_gradients(
                windows=self._size.batches != 1,
                clip_norm=clip_norm is not None,
                scaled=self._scaler is not None,
                skip_nonfinite=skip_nonfinite,
                accumulate_dtype=accumulate_dtype is not None,
                ranks=self._ranks,
            )

        self._window = Window()
        self._gradients = Gradients(accumulate_dtype)
        self._ownership = Ownership(self._gradients, self._window, self._ranks)
        self._by_hand = ByHand(self._optimizers)
        self._in_backward = InBackward(self._optimizers, clip_value) if free_gradients else None
        self._run_backward = BackwardPass(
            self._gradients,
            self._ownership,
            self._scaler,
            self._in_backward,
            summed=reduction == "sum",
        )
        self._step_on = CloseWindow(
            self._optimizers,
            self._scaler,
            self._ranks,
            clip_norm=clip_norm,
            clip_value=clip_value,
            skip_nonfinite=skip_nonfinite,
        )

        self._loop: object = None
        """The running loop. A loop that finds another one here has been left."""
        self._current = Current()
        self._awaiting = False
        """Whether a batch was handed out and its backward() has not been called."""
        self._sync_every = sync == "every"
        self._syncing = True
        """Whether the backward of this batch synchronises."""
        self._sync_all = self._ranks.sync_first_window
        """Whether DDP still has to learn its static graph."""
        self._resumed = False
        """Whether the next loop continues a loaded window."""
        self._fsdp_leftovers = False
        """Whether FSDP2 still stores the gradients of a dropped window."""

        self.last_step: Step | None = None
        self.history: deque[Step] = deque(maxlen=1000)
        self.steps = 0
        """The number of windows that ended with a step."""
        self.skipped = 0
        """The number of windows that ended without a step."""

    @property
    def padding(self) -> bool:
        """Whether the current batch is a repetition that only keeps the ranks together."""
        return self._current.padding

    # The loop

    def __call__(self, loader: Iterable[T]) -> Loop[T]:
        """The batches of the loader. Use it in a `for` loop, once."""
        return Loop(
            loader,
            self._batches(loader),
            self._current,
            advances=self._by_hand.advances,
            distributed=self._ranks.distributed,
        )

    def _batches(self, loader: Iterable[T]) -> Generator[T, None, None]:
        loop = object()
        if not self._resumed:
            self._drop()
            self._gradients.track(validate.parameters(self._optimizers))
        self._resumed = False
        self._loop = loop
        self._ownership.begin()
        self._by_hand.refuse(self._gradients.params)
        try:
            if self._ranks.distributed and max(self._ranks.gather(self._fsdp_leftovers)):
                self._purge()
            for batch, padding, final in batches_for(
                loader,
                self._ranks,
                self._window,
                by_weight=self._size.weight is not None,
                flush=self.flush,
            ):
                self._before_body(loop, padding, final)
                yield batch
                self._after_body(loop)
            self.flush()
        finally:
            if self._loop is loop:
                self._loop = None
                self._drop()
                self._ownership.end()
                self._by_hand.allow()
                self._ranks.set_sync(True)
                self._current.padding = False

    def _before_body(self, loop: object, padding: bool, final: bool) -> None:
        self._check_running(loop)
        if self._fsdp_leftovers and not self._window.count:
            self._purge()
        self._syncing = (
            not self._ranks.distributed
            or self._sync_every
            or self._sync_all
            or final
            or self._size.next_is_last(self._window)
        )
        self._ranks.set_sync(self._syncing)
        self._awaiting = True
        self._current.padding = padding
        self._current.final = final

    def _after_body(self, loop: object) -> None:
        self._check_running(loop)
        if self._awaiting and self._ranks.size > 1:
            raise RuntimeError(
                "backward() was not called for a batch, and the other ranks wait for it. To leave"
                " a batch out, do not `continue`: call backward(loss, weight=0)"
            )
        self._awaiting = False

    def _check_running(self, loop: object) -> None:
        if self._loop is not loop:
            raise RuntimeError("this loop ended when the same stepper began another loop")

    # A batch

    def backward(self, loss: Tensor, weight: object = 1, *, retain_graph: bool = False) -> None:
        """Back-propagate the loss of a batch, and step if that closes the window.

        `weight` is the number of samples or tokens in the loss: a number, or a tensor on the
        device of the loss. A batch with weight 0 does not count.
        """
        value = self._checked(loss, weight)
        self._awaiting = False
        try:
            with working:
                self._enter(value)
                window = self._window
                full = window.count == self._size.batches
                total = self._ranks.start_sum(window.weight) if full else None
                if isinstance(value, Tensor) or value != 0 or self._ranks.distributed:
                    self._run_backward(
                        loss,
                        value,
                        window.unit,
                        averages=self._syncing and self._ranks.distributed,
                        retain_graph=retain_graph,
                    )
                window.unsynced = not self._syncing
                if total is not None:
                    self._close(total())
                elif self._size.is_heavy(window):
                    self._close(window.whole)
        except BaseException:
            self._drop()
            raise

    def _checked(self, loss: Tensor, weight: object) -> Scalar:
        """The weight, if this call of backward() is allowed."""
        if isinstance(weight, Tensor) and weight.requires_grad:
            raise TypeError(
                "the weight has a graph, as a loss has: the loss comes first, backward(loss, weight)"
            )
        if not isinstance(loss, Tensor):
            raise TypeError(f"the loss must be a tensor, not {type(loss).__name__}")
        if loss.numel() != 1:
            raise ValueError(
                f"the loss must be one number, not a tensor of shape {tuple(loss.shape)}: take its"
                ' mean() (or its sum(), with reduction="sum")'
            )
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss has no graph to back-propagate through: it was detached, computed under"
                " no_grad(), or nothing it depends on requires a gradient"
            )
        value = checked_weight(weight)
        if self._loop is None:
            raise RuntimeError(
                "call backward() inside a loop over stepper(loader): the loop decides which window"
                " the gradient belongs to"
            )
        if not self._awaiting:
            raise RuntimeError(
                "backward() was already called for this batch: add up its losses and call it once"
            )
        return 0.0 if self._current.padding else value

    def _enter(self, weight: Scalar) -> None:
        """Open a window if none is open, and count a batch of this weight in it."""
        opens = self._window.count == 0
        if opens:
            self._step_on.claim_scaler()
            self._gradients.track(validate.parameters(self._optimizers))
            self._by_hand.refuse(self._gradients.params)
        self._ownership.acquire()
        if opens:
            if self._gradients.any_grad():
                self._clear()
            self._window.unit = self._size.unit(weight)
        self._gradients.move_in()
        self._gradients.check_kept()
        self._window.add(weight, self._current.padding)

    # The end of a window

    def flush(self) -> None:
        """Close the open window now and step with its gradients. Without an open window, do nothing.

        Under DDP and FSDP2 every rank must call it. It repeats the last forward, with weight 0, to
        synchronise the gradients.
        """
        if not self._window.count:
            return
        try:
            with working:
                self._ownership.acquire()
                self._gradients.move_in()
                self._gradients.check_kept()
                if self._window.unsynced:
                    self._gradients.write_grad()
                    if not self._ranks.sync_again():
                        raise RuntimeError(
                            "flush() cannot synchronise a loaded window before its next batch: call"
                            " flush() after a batch"
                        )
                    self._gradients.accumulate()
                self._close(self._ranks.start_sum(self._window.weight)())
        except BaseException:
            self._drop()
            raise

    def _close(self, weight: Scalar) -> None:
        """Unscale, normalise, clip, step, update, clear: in this order, once."""
        self._ownership.acquire()
        self._gradients.move_in()
        window, length = self._window, self._window.length
        no_weight = not isinstance(weight, Tensor) and weight == 0
        if not no_weight:
            self._size.measure(window, weight)
        groups = [group for one in self._optimizers for group in one.param_groups]
        rates = tuple(group.get("lr", math.nan) for group in groups)
        scale = self._step_on.scale(self._gradients.params[0].device)
        norm, reason = None, ""
        try:
            if no_weight:
                reason = "no weight"
            elif self._in_backward is not None:
                pass  # backward has stepped
            elif not self._gradients.present():
                reason = "no gradient"
            else:
                with _intended():
                    norm, reason = self._step_on(self._gradients, window.unit, weight)
        finally:
            self._clear()
            self._end_window()
            self._ranks.forget_inputs()
            self._sync_all = False
        index = self.steps + self.skipped
        if reason:
            self.skipped += 1
        else:
            self.steps += 1
            for scheduler in self._schedulers:
                scheduler.step()
        self.last_step = Step(index, reason, length, rates, weight, norm, scale)
        self.history.append(self.last_step)

    def _clear(self) -> None:
        with working, _intended():
            for optimizer in self._optimizers:
                optimizer.zero_grad(set_to_none=True)
        self._gradients.forget()

    def _end_window(self) -> None:
        self._window.reset()
        if self._loop is None:
            self._ownership.end()

    def _drop(self) -> None:
        """Forget the open window and its gradients."""
        if self._window.count:
            self._ownership.acquire(strict=False)
            self._fsdp_leftovers |= self._ranks.sharded and not self._sync_every
            self._clear()
            self._end_window()
        self._awaiting = False
        self._resumed = False

    def _purge(self) -> None:
        """Remove what FSDP2 stores: it would add unsynchronised gradients to the next window."""
        with working:
            self._ranks.sync_again()
        self._clear()
        self._ranks.forget_inputs()
        self._fsdp_leftovers = False

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """The counts and the open window. Save optimizers, scaler and model beside it."""
        window = None
        if self._window.count:
            if self._ranks.sharded and not self._sync_every:
                raise RuntimeError(
                    "under FSDP2 the gradients of an open window cannot be saved: call"
                    " stepper.flush() first, on every rank, or save between windows"
                )
            window = {**self._window.state(), "gradients": self._gradients.copies()}
        mean_weight = self._size.mean_weight
        return {
            "version": 1,
            "steps": self.steps,
            "skipped": self.skipped,
            "usual": None if mean_weight is None else float(mean_weight),
            "window": window,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict()` was called: the next loop continues the saved window."""
        if state.get("version") != 1:
            raise ValueError(
                f"this is not the state of a Stepper: its version is {state.get('version')!r}"
            )
        if self._loop is not None:
            raise RuntimeError("call load_state_dict() before the loop, not inside it")
        window = state["window"]
        params = validate.parameters(self._optimizers)
        if window is not None:
            held = window["gradients"]
            shapes = [None if one is None else one.shape for one in held]
            if len(held) != len(params) or any(
                shape not in (None, param.shape)
                for shape, param in zip(shapes, params, strict=True)
            ):
                raise ValueError("the saved window holds the gradients of other parameters")
        self._drop()
        self._clear()
        self.steps, self.skipped = state["steps"], state["skipped"]
        self._size.mean_weight = state["usual"]
        if window is not None:
            numbers = {name: value for name, value in window.items() if name != "gradients"}
            self._window.reset(**numbers)
            self._gradients.load(params, window["gradients"])
            self._resumed = True
            self._ownership.begin()


def _intended() -> AbstractContextManager[None]:
    """If the run is watched: window lengths and dropped gradients are as intended here."""
    watch = sys.modules.get("zerograd.runtime.watch")
    return nullcontext() if watch is None else watch.allow_windows()
