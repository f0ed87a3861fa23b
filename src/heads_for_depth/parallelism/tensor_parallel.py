"""One model over several processes: heads and MLP columns are shared out, everything else is in every process.

Each layer's first matrix is split by columns and its second by rows (Shoeybi et al. 2019), so that attention and MLP
each end in one all-reduce and nothing else is communicated. The fused query/key/value matrix is put in another order
first, so that the contiguous piece of a process holds queries, keys and values of its own heads.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from heads_for_depth.errors import BadInput
from heads_for_depth.parallelism.constraints import check_degree
from heads_for_depth.recount import Countable

SUPPORTED = ("vit", "deit", "gpt2")
_VIT = ("blocks.*", ("attn.qkv", "mlp.fc1"), ("attn.proj", "mlp.fc2"))
_GPT2 = ("transformer.h.*", ("attn.c_attn", "mlp.c_fc"), ("attn.c_proj", "mlp.c_proj"))
_LAYERS = {"vit": _VIT, "deit": _VIT, "gpt2": _GPT2}
"""Family -> its blocks, the layers split by columns, the layers split by rows."""


def check_supported(shape: Countable) -> None:
    """Raise BadInput for a family that `split` cannot share out."""
    if shape.family not in SUPPORTED:
        raise BadInput("family", shape.family, f"tensor parallelism splits {', '.join(SUPPORTED)}")


def split(model: nn.Module, shape: Countable, mesh: DeviceMesh) -> nn.Module:
    """Share the model of this shape out over the processes of a one-dimensional mesh; changes it in place.

    Every process of the mesh calls this with equal weights, which are cut and not sent. A mesh of one process leaves
    every matrix whole, and its forward pass communicates nothing. Raises BadInput for a family that cannot be split
    and for a degree that the shape does not admit.
    """
    check_supported(shape)
    check_degree(shape, mesh.size())
    (_share_gpt2 if shape.family == "gpt2" else _share_vit)(model, mesh.size())
    blocks, columns, rows = _LAYERS[shape.family]
    plan: dict[str, ParallelStyle] = {f"{blocks}.{name}": ColwiseParallel() for name in columns}
    plan |= {f"{blocks}.{name}": RowwiseParallel() for name in rows}
    return parallelize_module(model, mesh, plan, src_data_rank=None)


def fused_order(inner_width: int, degree: int) -> Int[Tensor, " rows"]:
    """Rows of a fused [queries | keys | values] matrix, in the order in which each process's piece is contiguous.

    `inner_width` is h·head_dim; the result is a permutation of 3·inner_width rows.
    """
    rows = torch.arange(3 * inner_width).view(3, degree, inner_width // degree)
    return rows.transpose(0, 1).flatten()


def _share_vit(model: nn.Module, degree: int) -> None:
    """Reorder timm's fused matrices, and tell each attention how many heads it has."""
    blocks: Any = model.blocks
    for attention in (block.attn for block in blocks):
        _reorder(attention.qkv, fused_order(attention.attn_dim, degree))
        attention.num_heads //= degree
        attention.attn_dim //= degree


def _share_gpt2(model: nn.Module, degree: int) -> None:
    """Make linear layers of transformers' transposed ones, reorder the fused matrices, and tell each its width."""
    transformer: Any = model.transformer
    for attention, mlp in ((block.attn, block.mlp) for block in transformer.h):
        for parent, name in ((attention, "c_attn"), (attention, "c_proj"), (mlp, "c_fc"), (mlp, "c_proj")):
            setattr(parent, name, _linear(getattr(parent, name)))
        _reorder(attention.c_attn, fused_order(attention.split_size, degree))
        attention.num_heads //= degree
        attention.split_size //= degree


def _linear(transposed: Any) -> nn.Linear:
    """The linear layer that computes what transformers' Conv1D does, whose weight is (inputs, outputs)."""
    weight: Tensor = transposed.weight.detach()
    inputs, outputs = weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight = nn.Parameter(weight.T.contiguous())
    linear.bias = nn.Parameter(transposed.bias.detach())
    return linear


def _reorder(fused: nn.Linear, order: Tensor) -> None:
    order = order.to(fused.weight.device)
    with torch.no_grad():
        fused.weight.copy_(fused.weight[order])
        if fused.bias is not None:
            fused.bias.copy_(fused.bias[order])
