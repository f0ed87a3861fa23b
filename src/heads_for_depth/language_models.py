"""LanguageShape -> nn.Module, from transformers' own classes, randomly initialized.

GPT-2 is transformers' GPT-2. A crammed BERT is transformers' ModernBERT with every layer attending to every token, no
biases in linear layers, and no transformation ahead of the tied decoder: the same matrix products and the same gated
MLP as the public configuration. It lacks `rotary_difference` parameters, none of them in a matrix: positions are
rotary instead of a scaled sinusoid, and the first layer has no norm of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from heads_for_depth.errors import BadInput
from heads_for_depth.recount import LanguageShape


def rotary_difference(shape: LanguageShape) -> int:
    """Parameters of the public crammed BERT that its stand-in lacks: one scale, and one norm's weight and bias."""
    return 1 + 2 * shape.d_model[0]


def build_language(shape: LanguageShape, device: str | torch.device = "cpu", tokens: int = 1_024) -> nn.Module:
    """The causal (gpt2) or masked (crammed-bert) language model of this shape; `meta` allocates nothing.

    `tokens` is the longest text where the shape has no position table of its own. Raises BadInput where the attention
    is wider than the tokens, which transformers' models are not, and where transformers is not installed.
    """
    if shape.inner_widths != shape.d_model:
        raise BadInput("head_dim", shape.head_dim, f"transformers builds {shape.family} with d_model / heads only")
    try:
        import transformers
    except ImportError as error:
        raise BadInput("family", shape.family, "needs a package: pip install transformers") from error
    with torch.device(device):
        return _BUILDERS[shape.family](transformers, shape, tokens)


def _gpt2(transformers: Any, shape: LanguageShape, tokens: int) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=shape.vocab_size, n_positions=shape.positions, n_embd=shape.d_model[0], n_layer=shape.depth[0],
        n_head=shape.heads[0], n_inner=shape.mlp_width[0], use_cache=False, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model: nn.Module = transformers.GPT2LMHeadModel(config)
    return model


def _crammed_bert(transformers: Any, shape: LanguageShape, tokens: int) -> nn.Module:
    config = transformers.ModernBertConfig(
        vocab_size=shape.vocab_size, hidden_size=shape.d_model[0], intermediate_size=shape.mlp_width[0] // 2,
        num_hidden_layers=shape.depth[0], num_attention_heads=shape.heads[0], max_position_embeddings=tokens,
        layer_types=["full_attention"] * shape.depth[0], norm_bias=True, attention_bias=False, mlp_bias=False,
        decoder_bias=False, pad_token_id=0, bos_token_id=0, eos_token_id=0, cls_token_id=0, sep_token_id=0,
    )  # fmt: skip
    model: nn.Module = transformers.ModernBertForMaskedLM(config)
    model.head = nn.Identity()
    return model


_BUILDERS: dict[str, Callable[[Any, LanguageShape, int], nn.Module]] = {"gpt2": _gpt2, "crammed-bert": _crammed_bert}
