"""The loss of an unmodified program's step: what its backward passes start from, put back into the program's own terms.

Of accumulated batches it is the mean. Each loss counts without the division by their number that accumulation brings
(`loss / 4`), so that the figure is comparable to one batch's, however the program scales. On a device the first batch's
stands for the step, as values are read without waiting.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from trainhooks.device import cuda, deferred

Seen = Tuple[Any, Optional[float]]  # a loss, as a number or on its way from a device, and its divisor
# How torch keeps a Python number of an expression; a tensor, as in a masked mean, is usually of another type.
NUMBERS = frozenset(("torch.int64", "torch.float64"))
MOST_DIVISIONS = 3  # looked at, of a loss
UNREAD = 0.0  # a divisor that was not looked for


class StepLoss:
    """The losses of the open step.

    Attributes:
        value: their sum, or the first one on its way from a device; None: unknown.
        scaled: whether a loss scaler is in use: backward passes start from another value than the loss.
    """

    __slots__ = ("_accumulated", "_accumulates", "_divisor", "_is_scaled", "_unscaled", "scaled", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.scaled = False
        self._divisor: Optional[float] = None  # by which all of them were divided last
        # Whether several passes were seen in a step. Only then is a divisor read: what a graph has saved may belong to
        # hooks of the program, which compute it again (checkpointing) or may be asked only once (offloading).
        self._accumulates = False
        self._is_scaled = False  # a scaler was used in the open step
        self._accumulated: Optional[float] = None  # such a divisor that was the number of a step's backward passes
        self._unscaled: Optional[Seen] = None  # what the scaler scaled last

    def scale(self, loss: Any, place: int) -> None:
        """Take a loss that a scaler multiplies: the next backward pass starts from the product."""
        self.uses_scaler()
        self._unscaled = self._read(loss, place)

    def uses_scaler(self) -> None:
        self.scaled = self._is_scaled = True

    def step_ends(self) -> None:
        """Take the end of a step: a scaler that it did not use belongs to an earlier training."""
        self.scaled, self._is_scaled = self.scaled and self._is_scaled, False

    def add(self, loss: Any, place: int, again: bool = False) -> None:
        """Take the loss that a backward pass starts from.

        Args:
            loss: None if its value may not be read.
            place: backward passes of this step before it.
            again: whether an optimizer's closure computes it, which computes that of the same batch again.
        """
        if self.scaled:
            seen, self._unscaled = self._unscaled, None
        else:
            seen = None if loss is None else self._read(loss, place)
        if place == 0:
            self.value, self._divisor = (None, None) if seen is None else seen
        elif again:
            self.drop()
        elif type(self.value) is float:
            if seen is None or type(seen[0]) is not float:
                self.value = None
            else:
                self.value += seen[0]
                self._divisor = seen[1] if self._divisor in (UNREAD, seen[1]) else None

    def of_step(self, backwards: int, batches: Tuple[int, int], optimizers: int) -> Any:
        """Return the loss of a step that ends, and drop it; None where it is unknown.

        Args:
            backwards: its backward passes.
            batches: calls of its model, and batches fetched: one for each pass, where passes accumulate.
            optimizers: how many stepped; with several, the losses are of different kinds.
        """
        value, divisor = self.value, self._divisor
        if backwards > 1 and not self._accumulates:
            self._accumulates = True
            if divisor == UNREAD:  # on a device the first loss stands for all of them
                self.drop()
                return None
        if backwards > 1:
            if optimizers > 1 or not (backwards in batches or backwards == divisor):
                self.drop()
                return None
            if backwards == divisor:
                self._accumulated = divisor
        self.value = None
        factor = divisor if divisor and divisor == self._accumulated else 1.0
        if type(value) is deferred.Deferred:
            value.factor = factor
            return value
        return value / backwards * factor if backwards > 1 or factor != 1.0 else value

    def drop(self) -> None:
        """Drop what is known of the open step's loss."""
        value, self.value = self.value, None
        if type(value) is deferred.Deferred:
            value.wanted = False

    def _read(self, loss: Any, place: int) -> Optional[Seen]:
        if cuda.modes_active() or (place and not loss.is_cpu):  # reading it would be visible to the program
            return None
        value = loss.item() if loss.is_cpu else deferred.start_copy("loss", loss)
        if value is None:
            return None
        return value, _divisor(loss) if place or self._accumulates else UNREAD


def _divisor(loss: Any) -> Optional[float]:
    """Return the number by which a loss was divided last, as by `loss / 4` or `loss * 0.25`; None: by none.

    A division by one is none: Accelerate divides by its own number of passes what the program has divided already.
    """
    node, number = loss.grad_fn, None
    for _ in range(MOST_DIVISIONS):
        number = None if node is None else _number(node)
        if number != 1.0:
            break
        node = node.next_functions[0][0]
    return number


def _number(node: Any) -> Optional[float]:
    """Return the number by which a node of autograd's graph divides; None: it does something else."""
    name = node.name()
    if name not in ("DivBackward0", "MulBackward0"):
        return None
    other = node._saved_other
    if other is None or not other.is_cpu or other.dim() or str(other.dtype) not in NUMBERS:
        return None
    number = float(other)
    if name == "DivBackward0":
        return number
    return round(1.0 / number, 6) if number else None
