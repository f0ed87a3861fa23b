"""Tables and sentences of the theorem's premises and of κ through training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf

import pandas as pd

from heads_for_depth.claims import Claim
from heads_for_depth.experiments import VISION_ROWS
from heads_for_depth.findings.premises import OBJECTS, PremiseLine, TrainingPath
from heads_for_depth.tables.formatting import MISSING, change, stages, two_digits
from heads_for_depth.tables.formatting import NONE as NO_NUMBER
from heads_for_depth.tables.throughput import one_line_at_least
from heads_for_depth.tables.vision import NONE, kappa

TITLES = {row.name: row.title for row in VISION_ROWS} | {"vit-l": "ViT-L"}
SIDES = {"before": "before", "after": "after", "after-wide": "after, head_dim as before"}
SAME_AS = {"vit-b": "vit-own", "deit-b": "vit-own", "deit-l": "vit-l"}
"""Published row -> the measured row whose shape before is the same."""


def theorem(lines: Sequence[PremiseLine], claims: Sequence[Claim], inputs: str = "noise") -> pd.DataFrame:
    """One line per published row: N, D, D/N, the prediction before and after, and κ before and after."""
    found = {(line.row, line.side): line for line in lines if line.inputs == inputs}
    rows = [
        _theorem_line(claim.title, SAME_AS.get(claim.row, claim.row), found, stages(claim.d_model)) for claim in claims
    ]
    after_known = {claim.title for claim in claims if claim.status != "confounded"} | {TITLES["vit-own"]}
    rows.append(_theorem_line(TITLES["vit-own"], "vit-own", found, MISSING))
    return one_line_at_least([_known(line, line["row"] in after_known) for line in rows], ["row"])


def _theorem_line(title: str, row: str, found: Mapping[tuple[str, str], PremiseLine], d_model: str) -> dict[str, str]:
    """`d_model` as the claim has it, for a row whose shape this report does not measure."""
    before, after = found.get((row, "before")), found.get((row, "after"))
    if before is None:
        return {"row": title, "N": NONE, "D": d_model} | dict.fromkeys(("D/N", *BOTH_SIDES), NONE)
    sides = [before] if after is None else [before, after]
    return {
        "row": title,
        "N": str(before.tokens),
        "D": str(before.width),
        "D/N": two_digits(before.width / before.tokens),
        "predicted κ": " → ".join(predicted(side) for side in sides),
        "measured κ": " → ".join(kappa(side.kappa) for side in sides),
    }


BOTH_SIDES = ("predicted κ", "measured κ")


def _known(line: dict[str, str], after_known: bool) -> dict[str, str]:
    """The line of a row whose heads after the reshape are not in the record says so."""
    if after_known or line["N"] == NONE:
        return line
    return line | {name: f"{line[name].split(' → ')[0]} → {MISSING}" for name in BOTH_SIDES}


def predicted(line: PremiseLine) -> str:
    """The Gaussian prediction; there is none where D does not exceed N."""
    return NO_NUMBER if line.gaussian is None else kappa(line.gaussian)


def premises(lines: Sequence[PremiseLine], inputs: str) -> pd.DataFrame:
    """One line per measured shape: correlation between heads and isotropy against independent normal entries."""
    return one_line_at_least([_premise_line(line) for line in lines if line.inputs == inputs], ["row"])


def _premise_line(line: PremiseLine) -> dict[str, str]:
    return {
        "row": TITLES.get(line.row, line.row),
        "shape": SIDES[line.side],
        "heads": str(line.heads),
        "N × D": f"{line.tokens} × {line.width}",
        "correlation between heads": _share(line.head_correlation),
        "if independent": _share(line.head_correlation_independent),
        "isotropy": _share(line.isotropy),
        "predicted κ": predicted(line),
        "measured κ": kappa(line.kappa),
    }


def _share(value: float | None) -> str:
    return NO_NUMBER if value is None else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def through_training(paths: Sequence[TrainingPath]) -> pd.DataFrame:
    """One line per cell: κ of the four objects before and after training, ranks, premises."""
    return one_line_at_least([_path_line(path) for path in paths], ["row"])


def _path_line(path: TrainingPath) -> dict[str, str]:
    return (
        {"row": path.title, "depth": str(path.depth), "heads": str(path.heads)}
        | {name: _ends(path.kappa.get(name)) for name in OBJECTS}
        | {
            "effective rank": _change(path.effective_rank, 1),
            "numerical rank": _change(path.numerical_rank, 0),
            "correlation between heads": change(*(_share(path.head_correlation[end]) for end in (0, -1))),
            "isotropy": change(*(_share(path.isotropy[end]) for end in (0, -1))),
            "n": str(path.n),
            "failed": str(path.failed),
        }
    )


def head_ratios(paths: Sequence[TrainingPath]) -> pd.DataFrame:
    """One line per row and depth: κ at the heads after over κ at the heads before, at the start and at the end."""
    cells = {(path.row, path.depth_arm, path.heads_arm): path for path in paths}
    return one_line_at_least(
        [
            _ratio_line(cells[row, depth, "before"], path)
            for (row, depth, heads), path in cells.items()
            if heads == "after" and (row, depth, "before") in cells
        ],
        ["row"],
    )


def _ratio_line(before: TrainingPath, after: TrainingPath) -> dict[str, str]:
    few, many = before.kappa["concatenated"], after.kappa["concatenated"]
    return {
        "row": after.title,
        "depth": str(after.depth),
        "heads": change(str(before.heads), str(after.heads)),
        "κ ×, start": _quotient(few[0], many[0]),
        "κ ×, end": _quotient(few[-1], many[-1]),
        "n": str(after.n) if before.n == after.n else f"{before.n} and {after.n}",
    }


def _quotient(before: float, after: float) -> str:
    return "not finite" if isinf(before) or isinf(after) else f"{after / before:.2f}"


def _ends(values: Sequence[float] | None) -> str:
    return NONE if not values else change(kappa(values[0]), kappa(values[-1]))


def _change(values: Sequence[float], digits: int) -> str:
    return change(*(f"{values[end]:.{digits}f}" for end in (0, -1)))


def glued(lines: Sequence[PremiseLine], paths: Sequence[TrainingPath]) -> dict[str, str]:
    """Every sentence that the chapters quote."""
    return {"premises.prediction": _prediction(lines), "premises.hold": _hold(lines), "training.kappa": _trained(paths)}


def _prediction(lines: Sequence[PremiseLine]) -> str:
    """Whether the prediction knows of the head count."""
    found = {(line.row, line.side): line for line in lines if line.inputs == "noise"}
    pairs = [(found[row, "before"], found[row, "after"]) for row, side in found if side == "after"]
    if not pairs:
        return "The premises are not measured yet."
    predicted_pairs = [(before, after) for before, after in pairs if before.gaussian is not None]
    same = sum(before.gaussian == after.gaussian for before, after in predicted_pairs)
    moved = sum(after.kappa < before.kappa for before, after in pairs)
    return (
        f"In {same} of the {len(predicted_pairs)} rows that have a prediction it is the same number after the "
        f"reshape as before, since neither N nor D changes; measured κ is lower after the reshape in {moved} of "
        f"{len(pairs)} rows (observation: n = 1 draw of the weights)."
    )


def _hold(lines: Sequence[PremiseLine]) -> str:
    ours = [line for line in lines if line.side != "after-wide"]
    if not ours:
        return "The premises are not measured yet."
    isotropies = [line.isotropy for line in ours]
    above = [line for line in ours if (line.head_correlation or 0.0) > (line.head_correlation_independent or 1.0)]
    counted = [line for line in ours if line.head_correlation is not None]
    return (
        f"Heads are more alike than independent ones in {len(above)} of {len(counted)} shapes and inputs, and isotropy "
        f"lies between {_share(min(isotropies))} and {_share(max(isotropies))} where the theorem has 1 "
        "(observation: n = 1 draw of the weights)."
    )


def _trained(paths: Sequence[TrainingPath]) -> str:
    """Whether the reshape's heads lower κ at the same depth before and after training."""
    cells = {(path.row, path.depth_arm, path.heads_arm): path for path in paths}
    pairs = [
        (cells[row, depth, "before"].kappa["concatenated"], path.kappa["concatenated"])
        for (row, depth, heads), path in cells.items()
        if heads == "after" and (row, depth, "before") in cells
    ]
    if not pairs:
        return "κ through training is not recorded yet."
    start, end = (sum(after[place] < before[place] for before, after in pairs) for place in (0, -1))
    seeds = " to ".join(map(str, sorted({min(path.n for path in paths), max(path.n for path in paths)})))
    return (
        f"At the same depth, the heads after the reshape have the lower κ in {start} of {len(pairs)} pairs of cells "
        f"before training and in {end} after it (observation, n = {seeds} per "
        "cell)."
    )
