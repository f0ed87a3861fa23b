"""What a stretch of code communicates: every collective call of this process, and the bytes that it hands over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

NAMESPACES = ("_c10d_functional", "c10d")
"""Where torch keeps its collectives: those that return their result, and those that work in place."""
MOVING = ("reduce", "gather", "scatter", "all_to_all", "alltoall", "broadcast", "send", "recv", "p2p")
"""Parts of the names of operators there that move a payload; the others wait, wrap or check."""
PAYLOADS = ("input", "input_tensor", "inputs", "input_tensors", "tensor", "tensors", "self")
"""Names of the argument that a process hands over, by operator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One call."""

    name: str
    """As torch's functional collectives are called: `all_reduce`, `all_gather_into_tensor`, …"""
    payload_bytes: int
    """Elements times element size of what this process hands over, whatever an algorithm sends over the wire."""


class Communication(TorchDispatchMode):
    """Notes every collective inside `with Communication() as noted:`, also those that a DTensor makes by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.collectives: list[Collective] = []

    def calls(self, name: str = "all_reduce") -> int:
        """How often one kind was called."""
        return sum(call.name == name for call in self.collectives)

    def payload_bytes(self, name: str = "all_reduce") -> int:
        """Bytes that this process handed over in all calls of one kind."""
        return sum(call.payload_bytes for call in self.collectives if call.name == name)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry the operation out, noting a collective; a DTensor first says which operations it is made of."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        name = _collective_name(func)
        if any(part in name for part in MOVING):
            self.collectives.append(Collective(name=name, payload_bytes=_payload_bytes(func, args)))
        return func(*args, **(kwargs or {}))


def _collective_name(func: Any) -> str:
    """The operator's name without its overload and the mark of what works in place; empty for anything else."""
    namespace, _, name = func._schema.name.partition("::")
    if namespace not in NAMESPACES:
        return ""
    return str(name).strip("_").replace("allreduce", "all_reduce")


def _payload_bytes(func: Callable[..., Any], args: tuple[Any, ...]) -> int:
    names = [argument.name for argument in func._schema.arguments]  # type: ignore[attr-defined]
    handed = [value for name, value in zip(names, args, strict=False) if name in PAYLOADS]
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(handed))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)
