"""A rule in words and as changed fields."""

from dataclasses import fields

from heads_for_depth.recount.counts import CLASS_BLOCKS, Countable, Variant
from heads_for_depth.recount.rules import head_dims

Changes = dict[str, tuple[object, object]]


def changed_fields(stated: Countable, variant: Variant) -> Changes:
    """Field -> (stated value, value of the rule) for everything that differs, the attention inner width spelt out."""
    names = [field.name for field in fields(stated) if field.name not in ("head_dim", "widen_class_attention")]
    changes: Changes = {
        name: (getattr(stated, name), getattr(variant.shape, name))
        for name in names
        if getattr(stated, name) != getattr(variant.shape, name)
    }
    if variant.class_mlp_width is not None:
        changes["class_mlp_width"] = (stated.mlp_width[-1], variant.class_mlp_width)
    if variant.shape.head_dim != stated.head_dim:
        changes["head_dim"] = (head_dims(stated), head_dims(variant.shape))
        changes["inner_width"] = (stated.inner_widths, variant.shape.inner_widths)
        if stated.family in CLASS_BLOCKS:
            changes["widen_class_attention"] = (None, getattr(variant.shape, "widen_class_attention", None))
    return changes


def describe(stated: Countable, other: Countable | None, variant: Variant) -> tuple[str, ...]:
    """One phrase per changed quantity, with the stated value in brackets."""
    changes = changed_fields(stated, variant)
    names = {"d_model": "d_model", "depth": "depth", "inner_d_model": "inner d_model"}
    phrases = [f"{name} {_values(changes, field)}" for field, name in names.items() if field in changes]
    if "mlp_width" in changes:
        only = ", class-attention blocks as stated" if "class_mlp_width" in changes else ""
        phrases.append(f"MLP width {_values(changes, 'mlp_width')}{only}")
    if "inner_width" in changes:
        phrases.append(f"attention inner width {_values(changes, 'inner_width')}{_how_widened(other, changes)}")
    return tuple(phrases)


def _how_widened(other: Countable | None, changes: Changes) -> str:
    kept = other is not None and changes["head_dim"][1] == head_dims(other)
    head_dim = f", head_dim {_shown(changes['head_dim'][1])} kept from the other side" if kept else ""
    class_stays = changes.get("widen_class_attention") == (None, False)
    return head_dim + (", class attention as stated" if class_stays else "")


def _values(changes: Changes, field: str) -> str:
    stated, new = changes[field]
    return f"{_shown(new)} (stated: {_shown(stated)})"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
