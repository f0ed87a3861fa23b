"""Tensor parallelism: real processes that compute the logits of one, what they send, and the predicted costs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import torch
import typer
from torch import distributed, nn
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.tensor.debug import CommDebugMode

from heads_for_depth import parallelism, records
from heads_for_depth.cli import parallelism_command
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import vision_row
from heads_for_depth.flops import forward_flops
from heads_for_depth.models import build, count_parameters
from heads_for_depth.parallelism import (
    Assumptions,
    Communication,
    Layout,
    Member,
    ProcessesFailed,
    Request,
    admissible_layouts,
    best_layout,
    bubble,
    ceiling,
    ceiling_change,
    check_degree,
    check_layout,
    degrees,
    forward_seconds,
    fused_order,
    head_degrees,
    measure,
    measure_here,
    physical_cores,
    recording,
    ring_seconds,
    run_job,
    speed_up,
    split,
    timed,
    tokens_by_stage,
    training_seconds,
    work_of,
)
from heads_for_depth.parallelism.processes import TORCHRUN
from heads_for_depth.recount import LanguageShape
from heads_for_depth.shapes import Shape, divisors, with_heads

VIT = Shape(
    family="vit", depth=(3,), d_model=(32,), heads=(4,), mlp_width=(64,), image_size=28, patch_size=7, in_chans=1,
    classes=10,
)  # fmt: skip
WIDE_VIT = replace(VIT, heads=(8,), head_dim=(12,))
GPT2 = LanguageShape(family="gpt2", depth=(2,), d_model=(32,), heads=(4,), mlp_width=(64,), vocab_size=61, positions=24)
BERT = replace(GPT2, family="crammed-bert", positions=0)
SHAPES: dict[str, Shape | LanguageShape] = {"vit": VIT, "wide-vit": WIDE_VIT, "gpt2": GPT2}
TOKENS = {"vit": 17, "wide-vit": 17, "gpt2": 24}
BATCH = 3
TIMEOUT_SECONDS = 240.0
"""For one group of processes on a busy machine."""


@pytest.fixture(autouse=True)
def not_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests start their processes themselves, however they were started."""
    for name in ("WORLD_SIZE", *TORCHRUN):
        monkeypatch.delenv(name, raising=False)


# ---- four real processes ---------------------------------------------------------------------------------------------


def request_of(name: str, degree: int, **changed: Any) -> Request:
    return Request(shape=SHAPES[name], degree=degree, batch=BATCH, **{"repeats": 2} | changed)


def measure_all(member: Member) -> dict[str, Any]:
    """Every shape at every degree in one group of processes, and one forward pass that torch's own counter watches."""
    found = {(name, degree): measure_here(member, request_of(name, degree)) for name in SHAPES for degree in (1, 2, 4)}
    low = measure_here(member, request_of("vit", 2, dtype="bfloat16"))
    return {"measured": found, "bfloat16": low, "counts": by_torch(member), "weights": local_weights(member)}


def by_torch(member: Member) -> dict[str, int]:
    """Collectives of the forward pass of the ViT at degree 4, counted by torch's CommDebugMode."""
    mesh = member.mesh(4)
    assert mesh is not None
    model = split(build(VIT).eval(), VIT, mesh)
    with CommDebugMode() as counted, torch.no_grad():
        model(torch.zeros(BATCH, 1, 28, 28))
    return {str(name): int(count) for name, count in counted.get_comm_counts().items()}


def local_weights(member: Member) -> list[tuple[int, ...]]:
    """Shapes of the matrices that this process holds of the wide ViT's first block at degree 4."""
    mesh = member.mesh(4)
    assert mesh is not None
    block: Any = split(build(WIDE_VIT), WIDE_VIT, mesh).blocks[0]  # type: ignore[index]
    layers = (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2)
    return [tuple(layer.weight.to_local().shape) for layer in layers]


@pytest.fixture(scope="module")
def group() -> dict[str, Any]:
    """What four processes found, more than many machines have cores."""
    return run_job(4, measure_all, timeout_seconds=TIMEOUT_SECONDS)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("degree", [2, 4])
def test_the_logits_of_several_processes_are_those_of_one(group: dict[str, Any], name: str, degree: int):
    found = group["measured"][name, degree]
    assert found["status"] == "ok"
    assert 0 < found["largest_difference"] < 1e-5  # equal to the last bit would mean that nothing was split
    assert found["largest_logit"] > 0.1
    assert found["relative_difference"] == found["largest_difference"] / found["largest_logit"]


@pytest.mark.parametrize("name", SHAPES)
def test_one_process_has_the_very_logits_of_the_whole_model_and_sends_nothing(group: dict[str, Any], name: str):
    found = group["measured"][name, 1]
    assert found["largest_difference"] < 1e-6
    assert (found["all_reduces"], found["bytes"], found["other_collectives"]) == (0, 0, 0)
    assert (found["all_reduce_seconds"], found["communication_share"]) == (None, None)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("degree", [2, 4])
def test_a_forward_pass_sends_two_payloads_of_tokens_a_layer_and_nothing_else(
    group: dict[str, Any], name: str, degree: int
):
    found, depth = group["measured"][name, degree], SHAPES[name].depth[0]
    assert found["tokens"] == TOKENS[name]
    assert found["all_reduces"] == 2 * depth
    assert found["bytes"] == 2 * depth * BATCH * TOKENS[name] * 32 * 4
    assert found["other_collectives"] == 0


def test_half_the_precision_is_half_the_bytes_and_coarser_logits(group: dict[str, Any]):
    full, half = group["measured"]["vit", 2], group["bfloat16"]
    assert (half["all_reduces"], half["bytes"]) == (full["all_reduces"], full["bytes"] / 2)
    assert 1e-5 < half["relative_difference"] < 0.1


def test_torch_counts_the_same_collectives(group: dict[str, Any]):
    assert group["counts"] == {"c10d_functional.all_reduce": group["measured"]["vit", 4]["all_reduces"]}


def test_each_process_holds_its_share_of_the_matrices(group: dict[str, Any]):
    """Inner width 8·12 and MLP width 64, over 4 processes."""
    assert group["weights"] == [(3 * 24, 32), (32, 24), (16, 32), (32, 16)]


@pytest.mark.parametrize("name", SHAPES)
def test_the_cost_model_counts_the_elements_that_are_sent(group: dict[str, Any], name: str):
    amount = work_of(SHAPES[name])
    found = group["measured"][name, 2]
    assert (amount.all_reduces, 4 * BATCH * amount.reduced_elements) == (found["all_reduces"], found["bytes"])


@pytest.mark.parametrize("degree", [2, 4])
def test_seconds_are_raw_values_with_a_median_and_say_whether_cores_were_shared(group: dict[str, Any], degree: int):
    found = group["measured"]["vit", degree]
    for kind in ("forward_seconds", "all_reduce_seconds"):
        first, second = found[kind]["values"]
        assert found[kind]["median"] == pytest.approx((first + second) / 2)
        assert min(first, second) > 0
    expected = found["all_reduces"] * found["all_reduce_seconds"]["median"] / found["forward_seconds"]["median"]
    assert found["communication_share"] == pytest.approx(expected)
    assert (found["threads"], found["oversubscribed"]) == (1, degree > physical_cores())


# ---- starting and ending processes -----------------------------------------------------------------------------------


def test_measure_starts_its_own_processes(group: dict[str, Any]):
    found = measure(VIT, 2, batch=BATCH, repeats=1, timeout_seconds=TIMEOUT_SECONDS)
    timings = {"repeats", "forward_seconds", "all_reduce_seconds", "communication_share", "load_average"}
    known = group["measured"]["vit", 2]
    assert set(found) == set(known)
    assert {key: found[key] for key in set(found) - timings} == {key: known[key] for key in set(known) - timings}


def fail(member: Member, how: str) -> None:
    """The second process fails while the first waits for it."""
    if member.rank == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "refused":
            raise BadInput("shape", "this one", "is refused in one process")
        raise ArithmeticError("no such number")
    distributed.all_reduce(torch.zeros(1))


@pytest.mark.parametrize(
    ("how", "kind", "sentence"),
    [
        ("killed", ProcessesFailed, "process 1 of 2 was killed by SIGKILL"),
        ("raised", ProcessesFailed, "process 1 of 2 failed: ArithmeticError: no such number"),
        ("refused", BadInput, "shape is 'this one': is refused in one process"),
    ],
)
def test_what_stops_one_process_stops_all_and_is_said(how: str, kind: type[Exception], sentence: str):
    before = spawned()
    with pytest.raises(kind) as caught:
        run_job(2, fail, how, timeout_seconds=TIMEOUT_SECONDS)
    assert str(caught.value) == sentence
    assert spawned() <= before


def spawned() -> set[int]:
    """Processes that this one started as Python's multiprocessing does, and that are still there."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if "multiprocessing.spawn" in " ".join(child.cmdline())}


def sleep(member: Member, folder: str) -> None:
    """Deaf to a polite signal, as a process is that waits inside a library."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    (Path(folder) / f"{member.rank}.pid").write_text(str(os.getpid()))
    time.sleep(1000)


def test_processes_that_do_not_end_are_ended_after_the_time_allowed(tmp_path: Path):
    before = spawned()
    with pytest.raises(ProcessesFailed, match=r"^1 processes had not ended after 2 seconds"):
        run_job(1, sleep, str(tmp_path), timeout_seconds=2.0)
    assert spawned() <= before


PARENT = """
import sys
from test_parallelism import sleep
from heads_for_depth.parallelism import run_job

if __name__ == "__main__":
    run_job(2, sleep, sys.argv[1])
"""


def test_the_processes_end_with_the_one_that_started_them(tmp_path: Path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        "TMPDIR": str(tmp_path),  # a killed process leaves its folder behind
    }
    parent = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment)
    try:
        started = [int(path.read_text()) for path in waited_for(tmp_path, 2, parent)]
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in started if psutil.pid_exists(pid)], timeout=20)
    for process in alive:
        process.kill()
    assert (len(started), alive) == (2, [])


def waited_for(folder: Path, count: int, parent: subprocess.Popen[bytes]) -> list[Path]:
    """The notes of so many processes, once each has written its own whole."""
    patience = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < patience and parent.poll() is None:
        written = [path for path in folder.glob("*.pid") if path.read_text()]
        if len(written) == count:
            return written
        time.sleep(0.05)
    raise AssertionError("the processes did not start")


UNDER_TORCHRUN = """
import json
import os
import sys
from heads_for_depth.parallelism import measure, speaks
from test_parallelism import BATCH, VIT

found = [measure(VIT, degree, batch=BATCH, repeats=1) for degree in (2, 1)]
kept = [[one[key] for key in ("degree", "largest_difference", "all_reduces", "bytes")] for one in found]
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as file:
    json.dump({"found": kept, "speaks": speaks()}, file)
"""


def test_the_processes_of_torchrun_measure_the_same_and_one_speaks(group: dict[str, Any], tmp_path: Path):
    script = tmp_path / "measuring.py"
    script.write_text(UNDER_TORCHRUN)
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*start, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, check=False,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    names = ("degree", "largest_difference", "all_reduces", "bytes")
    assert first["found"] == [[group["measured"]["vit", degree][name] for name in names] for degree in (2, 1)]
    assert second["found"] == first["found"]
    assert (first["speaks"], second["speaks"]) == (True, False)


def test_too_few_processes_of_torchrun_are_refused_with_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(BadInput) as caught:
        measure(VIT, 4, batch=BATCH)
    assert (caught.value.field, caught.value.value) == ("processes", 2)
    remedy = "degree 4 needs at least 4 processes, start them with torchrun --nproc-per-node 4"
    assert caught.value.remedy == remedy


def test_a_number_of_processes_without_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(BadInput, match="WORLD_SIZE is '4': several processes need torchrun, which also sets RANK"):
        run_job(4, sleep)


def test_no_process_and_too_few_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(BadInput, match="processes is 0: must be at least 1"):
        run_job(0, sleep)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(BadInput, match="GPUs is 2: this machine has 1, and each of 2 processes needs its own"):
        run_job(2, sleep, device="cuda")


CORE = "processor\t: {thread}\nphysical id\t: {socket}\ncore id\t\t: {core}\n"


def test_two_threads_of_a_core_count_once_and_only_what_may_be_used_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    info = tmp_path / "cpuinfo"
    threads = [(socket, core) for socket in (0, 1) for core in (0, 1, 2) for _ in range(2)]
    info.write_text("\n".join(CORE.format(thread=n, socket=s, core=c) for n, (s, c) in enumerate(threads)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    assert physical_cores(info) == 6
    assert physical_cores(tmp_path / "none") == 12
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5})
    assert physical_cores(info) == 2


# ---- one process: clocks, counting, order ----------------------------------------------------------------------------


@pytest.fixture
def alone() -> Iterator[Member]:
    """A group of one, in this process."""
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield Member(rank=0, world_size=1, device=torch.device("cpu"))
    distributed.destroy_process_group()


def test_the_warm_up_and_the_wait_before_a_call_are_not_timed_but_the_wait_after_it_is():
    now = [0.0]
    costs = iter([100.0, 3.0, 1.0, 2.0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    seconds = timed(
        lambda: spend(next(costs)), 3,
        before=lambda: spend(50.0), after=lambda: spend(0.5), clock=lambda: now[0],
    )  # fmt: skip
    assert seconds == [3.5, 1.5, 2.5]


def test_the_median_is_that_of_the_forward_passes_after_the_warm_up(alone: Member):
    squares = iter([0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0])  # the warm-up starts at 0, the three calls at 1, 9 and 25
    found = measure_here(alone, request_of("vit", 1, repeats=3), clock=lambda: next(squares))
    assert found is not None
    assert found["forward_seconds"] == {"values": [3.0, 7.0, 11.0], "median": 7.0}


def test_collectives_that_work_in_place_are_counted_and_waiting_is_not(alone: Member):
    with Communication() as noted:
        distributed.all_reduce(torch.zeros(5, dtype=torch.float64))
        distributed.broadcast(torch.zeros(3), src=0)
        distributed.all_gather([torch.zeros(2)], torch.zeros(2))
        distributed.barrier()
        torch.zeros(7).add_(1)
    assert [(call.name, call.payload_bytes) for call in noted.collectives] == [
        ("all_reduce", 40), ("broadcast", 12), ("allgather", 8),
    ]  # fmt: skip
    assert (noted.calls(), noted.payload_bytes(), noted.payload_bytes("broadcast")) == (1, 40, 12)


def test_a_piece_of_the_fused_matrix_holds_queries_keys_and_values_of_its_own_heads():
    """Width 4 in two pieces: columns 0 and 1 of queries (0…), keys (4…) and values (8…), then columns 2 and 3."""
    assert fused_order(4, 2).tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 6, 12])
def test_every_row_of_the_fused_matrix_has_one_place(degree: int):
    order = fused_order(12, degree).tolist()
    assert sorted(order) == list(range(36))
    assert (order == sorted(order)) is (degree == 1)


def test_a_model_that_is_split_for_one_process_still_learns_the_same(alone: Member):
    """Gradients reach every parameter, and are those of the whole model."""
    mesh = alone.mesh(1)
    assert mesh is not None
    torch.manual_seed(0)
    whole = build(WIDE_VIT)
    torch.manual_seed(0)
    shared = split(build(WIDE_VIT), WIDE_VIT, mesh)
    images = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    for model in (whole, shared):
        model(images).square().sum().backward()
    for plain, cut in zip(whole.parameters(), shared.parameters(), strict=True):
        assert plain.grad is not None
        assert cut.grad is not None
        gradient = cut.grad.full_tensor() if hasattr(cut.grad, "full_tensor") else cut.grad
        torch.testing.assert_close(gradient, plain.grad)


# ---- what a shape admits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "kv_heads", "expected"),
    [(12, None, [1, 2, 3, 4, 6, 12]), (32, 8, [1, 2, 4, 8]), (12, 4, [1, 2, 4]), (7, 1, [1])],
)
def test_degrees_divide_heads_and_key_value_heads(heads: int, kv_heads: int | None, expected: list[int]):
    assert head_degrees(heads, kv_heads) == expected


@pytest.mark.parametrize(("heads", "kv_heads", "field"), [(0, None, "heads"), (8, 0, "kv_heads"), (8, 3, "kv_heads")])
def test_impossible_head_counts_are_refused(heads: int, kv_heads: int | None, field: str):
    with pytest.raises(BadInput) as caught:
        head_degrees(heads, kv_heads)
    assert caught.value.field == field


def test_a_degree_must_suit_every_stage_the_key_value_heads_and_the_mlp():
    davit = vision_row("davit-b").before
    assert degrees(davit) == [1, 2, 4]  # the first stage has four heads
    assert degrees(vision_row("vit-own").before, most=5) == [1, 2, 3, 4]
    assert degrees(replace(VIT, kv_heads=(2,))) == [1, 2]
    assert degrees(replace(VIT, mlp_width=(66,))) == [1, 2]
    assert degrees(GPT2) == [1, 2, 4]


def test_both_halves_of_a_gated_mlp_must_split():
    assert degrees(replace(BERT, mlp_width=(8,))) == [1, 2, 4]
    assert degrees(replace(BERT, mlp_width=(4,))) == [1, 2]
    assert degrees(replace(GPT2, mlp_width=(4,))) == [1, 2, 4]


def test_tnts_attention_inside_a_patch_constrains_nothing():
    tnt = vision_row("tnt-b").after
    assert degrees(replace(tnt, inner_heads=1)) == degrees(tnt) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("shape", "degree", "field", "value", "remedy"),
    [
        (VIT, 3, "heads", 4, "cannot be split over 3 processes, use a degree of 1, 2, 4"),
        (GPT2, 8, "heads", 4, "cannot be split over 8 processes, use a degree of 1, 2, 4"),
        (replace(VIT, kv_heads=(2,)), 4, "kv_heads", 2, "cannot be split over 4 processes, use a degree of 1, 2"),
        (replace(VIT, mlp_width=(66,)), 4, "mlp_width", 66, "cannot be split over 4 processes, use a degree of 1, 2"),
        (replace(BERT, mlp_width=(4,)), 4, "mlp_width", 4,
         "cannot be split in 2 parts over 4 processes, use a degree of 1, 2"),
        (VIT, 0, "degree", 0, "must be at least 1"),
    ],
)  # fmt: skip
def test_a_degree_that_does_not_divide_is_refused_by_name(
    shape: Shape, degree: int, field: str, value: int, remedy: str
):
    with pytest.raises(BadInput) as caught:
        check_degree(shape, degree)
    assert (caught.value.field, caught.value.value, caught.value.remedy) == (field, value, remedy)


@pytest.mark.parametrize("shape", [vision_row("xcit-m").before, vision_row("tnt-b").before, BERT])
def test_a_family_that_cannot_be_split_is_refused_with_those_that_can(shape: Shape | LanguageShape, alone: Member):
    sentence = f"family is '{shape.family}': tensor parallelism splits vit, deit, gpt2"
    with pytest.raises(BadInput, match=sentence):
        measure(shape, 1, batch=1)
    mesh = alone.mesh(1)
    assert mesh is not None
    with pytest.raises(BadInput, match=sentence):
        split(nn.Identity(), shape, mesh)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"degree": 3}, "heads is 4: cannot be split over 3 processes"),
        ({"batch": 0}, "batch is 0: must be at least 1"),
        ({"repeats": 0}, "repeats is 0: must be at least 1"),
        ({"tokens": 5}, "tokens is 5: is for models of text"),
        ({"device": "tpu"}, "device is 'tpu': use cpu or cuda"),
        ({"dtype": "int4"}, "dtype is 'int4': use one of float32, bfloat16"),
        ({"shape": GPT2, "tokens": 25}, "tokens is 25: must be at most the 24 positions"),
        ({"shape": GPT2, "tokens": 0}, "tokens is 0: give the tokens of a text"),
    ],
)
def test_a_bad_request_is_refused_before_any_process_starts(changed: dict[str, Any], sentence: str):
    known: dict[str, Any] = {"shape": VIT, "degree": 2, "batch": 1}
    with pytest.raises(BadInput, match=sentence):
        Request(**known | changed)


def test_a_gpu_without_bfloat16_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    with pytest.raises(BadInput, match="dtype is 'bfloat16': this machine's cuda does not compute in it, use float32"):
        Request(shape=VIT, degree=1, batch=1, device="cuda", dtype="bfloat16")
    assert Request(shape=VIT, degree=1, batch=1, device="cuda").dtype == "float32"


# ---- work ------------------------------------------------------------------------------------------------------------

ROWS = ("xcit-m", "tnt-b", "davit-b", "vit-own")
SMALL_SWIN = Shape(
    family="swin", depth=(1, 2), d_model=(32, 64), heads=(2, 4), mlp_width=(128, 256), image_size=64, patch_size=4,
    window=4, classes=10,
)  # fmt: skip
SMALL_VOLO = Shape(
    family="volo", depth=(1, 1, 1, 1), d_model=(32, 64, 64, 64), heads=(2, 4, 4, 4), mlp_width=(96, 192, 192, 192),
    image_size=64, patch_size=8, classes=10,
)  # fmt: skip
TEXT = replace(GPT2, depth=(2,), vocab_size=97, positions=32)


@pytest.mark.parametrize(
    "shape", [*(vision_row(row).before for row in ROWS), SMALL_SWIN, SMALL_VOLO], ids=lambda shape: shape.family
)
def test_the_operations_add_up_to_those_of_the_whole_model(shape: Shape):
    amount, deeper = work_of(shape), work_of(replace(shape, depth=tuple(2 * blocks for blocks in shape.depth)))
    assert amount.flops == forward_flops(shape)
    assert deeper.outside_flops == amount.outside_flops
    assert 1.8 < deeper.split_flops / amount.split_flops <= 2  # what lies between the stages does not double
    assert (amount.replicated_flops > 0) is (shape.family == "tnt")
    assert (amount.blocks, amount.parameters) == (sum(shape.depth), count_parameters(shape))


@pytest.mark.parametrize("shape", [TEXT, replace(BERT, vocab_size=97)], ids=lambda shape: shape.family)
def test_the_operations_of_a_text_add_up_and_its_head_lies_outside_the_blocks(shape: LanguageShape):
    amount = work_of(shape, 16)
    assert amount.flops == forward_flops(shape, 16)
    assert amount.outside_flops == 2 * 16 * 32 * 97


def test_the_blocks_of_a_vit_are_counted_as_by_hand():
    block = 2 * 17 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 2 * 17 * 17 * 32
    amount = work_of(VIT)
    assert amount.split_flops == 3 * block
    assert amount.outside_flops == 2 * 16 * 49 * 32 + 2 * 32 * 10
    assert (amount.all_reduces, amount.reduced_elements) == (6, 6 * 17 * 32)


@pytest.mark.parametrize(
    ("shape", "tokens"),
    [
        (vision_row("vit-own").before, (197,)), (vision_row("tnt-b").before, (197,)),
        (vision_row("xcit-m").before, (196,)), (vision_row("davit-b").before, (3136, 784, 196, 49)),
        (SMALL_SWIN, (256, 64)), (SMALL_VOLO, (64, 16, 16, 16)), (TEXT, (32,)),
    ],
)  # fmt: skip
def test_tokens_by_stage(shape: Shape | LanguageShape, tokens: tuple[int, ...]):
    assert tokens_by_stage(shape) == tokens


def test_a_block_of_davit_has_two_layers_of_attention_each_with_its_mlp():
    amount = work_of(vision_row("davit-b").before)
    assert amount.all_reduces == 4 * 12
    assert amount.reduced_elements == 4 * (3136 * 128 + 784 * 256 + 9 * 196 * 512 + 49 * 1024)


# ---- cost model ------------------------------------------------------------------------------------------------------

SIMPLE = Assumptions(
    peak_flops_per_second=1e9, utilisation=0.5, latency_seconds=0.001, node_bandwidth=1e6, network_bandwidth=1e5,
    gpus_per_node=4, bytes_per_element=2, micro_batches=4, batch=8,
)  # fmt: skip
BLOCK_FLOPS = 2 * 17 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 2 * 17 * 17 * 32
OUTSIDE_FLOPS = 2 * 16 * 49 * 32 + 2 * 32 * 10
SPEED = 0.5e9
SAMPLE_BYTES = 17 * 32 * 2


def test_the_bubble_of_four_stages_and_eight_micro_batches_is_three_elevenths():
    assert bubble(4, 8) == pytest.approx(3 / 11)
    assert bubble(1, 8) == 0


def test_a_ring_of_four_sends_one_and_a_half_times_the_payload():
    assert ring_seconds(1000.0, 4, 100.0, 0.25) == pytest.approx(1.5 * 10 + 0.25)
    assert ring_seconds(1000.0, 2, 100.0, 0.25) == pytest.approx(10 + 0.25)
    assert ring_seconds(1000.0, 1, 100.0, 0.25) == 0


def test_predicted_seconds_of_one_gpu_are_operations_over_speed():
    assert forward_seconds(VIT, Layout(), SIMPLE) == pytest.approx(8 * (3 * BLOCK_FLOPS + OUTSIDE_FLOPS) / SPEED)
    assert training_seconds(VIT, Layout(), SIMPLE) == pytest.approx(3 * forward_seconds(VIT, Layout(), SIMPLE))


def test_predicted_seconds_of_two_tensor_shares_by_hand():
    layout = Layout(tensor_degree=2)
    computing = 8 * (3 * BLOCK_FLOPS / 2 + OUTSIDE_FLOPS) / SPEED
    one_all_reduce = 8 * SAMPLE_BYTES / 1e6 + 0.001
    assert forward_seconds(VIT, layout, SIMPLE) == pytest.approx(computing + 6 * one_all_reduce)
    assert training_seconds(VIT, layout, SIMPLE) == pytest.approx(3 * computing + 12 * one_all_reduce)


def test_predicted_seconds_of_two_stages_by_hand():
    """Three blocks over two stages: the slower has two; four micro-batches of two samples take five slots."""
    layout = Layout(pipeline_stages=2)
    computing = 2 * (2 * BLOCK_FLOPS + OUTSIDE_FLOPS) / SPEED
    passing = 2 * SAMPLE_BYTES / 1e6 + 0.001
    assert forward_seconds(VIT, layout, SIMPLE) == pytest.approx(5 * (computing + passing))
    assert training_seconds(VIT, layout, SIMPLE) == pytest.approx(5 * (3 * computing + 2 * passing))


def test_predicted_seconds_of_replicas_by_hand():
    """Eight GPUs of nodes of four: gradients of half the parameters each go over the network, between four copies."""
    layout = Layout(tensor_degree=2, data_replicas=4)
    computing = 2 * (3 * BLOCK_FLOPS / 2 + OUTSIDE_FLOPS) / SPEED
    one_all_reduce = 2 * SAMPLE_BYTES / 1e6 + 0.001
    gradients = 4 * count_parameters(VIT) / 2
    summing = 2 * 3 / 4 * gradients / 1e5 + 0.001
    assert training_seconds(VIT, layout, SIMPLE) == pytest.approx(3 * computing + 12 * one_all_reduce + summing)
    assert forward_seconds(VIT, layout, SIMPLE) == pytest.approx(computing + 6 * one_all_reduce)


def test_a_tensor_group_larger_than_a_node_goes_over_the_network():
    wide = replace(VIT, heads=(8,))
    inside, outside = (
        forward_seconds(wide, Layout(tensor_degree=8), replace(SIMPLE, gpus_per_node=size)) for size in (8, 4)
    )
    assert outside - inside == pytest.approx(6 * 2 * 7 / 8 * 8 * SAMPLE_BYTES * (1 / 1e5 - 1 / 1e6))


def test_what_tnt_computes_inside_a_patch_is_not_shared_out():
    tnt = vision_row("tnt-b").after
    amount = work_of(tnt)
    free = replace(SIMPLE, latency_seconds=0.0, node_bandwidth=1e30)
    saved = forward_seconds(tnt, Layout(), free) - forward_seconds(tnt, Layout(tensor_degree=2), free)
    assert saved == pytest.approx(8 * amount.split_flops / 2 / SPEED)


@pytest.mark.parametrize("layout", [Layout(), Layout(tensor_degree=2), Layout(tensor_degree=2, pipeline_stages=3)])
@pytest.mark.parametrize("predicted", [forward_seconds, training_seconds])
def test_heads_do_not_change_the_predicted_seconds_of_a_layout(layout: Layout, predicted: Callable[..., float]):
    even = [heads for heads in divisors(768) if heads % 2 == 0]
    vit = vision_row("vit-own").before
    assert len({predicted(with_heads(vit, (heads,)), layout) for heads in even}) == 1
    texts = [replace(TEXT, depth=(3,), heads=(heads,)) for heads in (2, 4, 8, 16)]
    assert len({predicted(text, layout, tokens=16) for text in texts}) == 1


def test_more_heads_never_shrink_the_tensor_ceiling():
    vit = vision_row("vit-own").before
    tops = [ceiling(with_heads(vit, (heads,))).tensor_degree for heads in divisors(768)]
    assert all(fewer <= more for fewer, more in pairwise(tops))
    assert len(set(tops)) > 1


@pytest.mark.parametrize(
    ("row", "before", "after"),
    [
        ("xcit-m", (8, 24, 192), (16, 12, 192)),
        ("tnt-b", (10, 12, 120), (16, 8, 128)),
        ("xcit-l", (16, 24, 384), (24, 12, 288)),
        ("davit-b", (4, 12, 48), (8, 8, 64)),
        ("davit-l", (6, 12, 72), (12, 8, 96)),
        ("vit-own", (12, 12, 144), (24, 6, 144)),
    ],
)
def test_the_ceilings_of_the_rows(row: str, before: tuple[int, int, int], after: tuple[int, int, int]):
    known = vision_row(row)
    change = ceiling_change(known.before, known.after)
    for found, expected in ((change.before, before), (change.after, after)):
        assert (found.tensor_degree, found.pipeline_stages, found.gpus) == expected
    ratios = [Fraction(new, old) for new, old in zip(after, before, strict=True)]
    assert [change.tensor_degree, change.pipeline_stages, change.gpus] == ratios


def test_the_layouts_of_a_shape_use_all_gpus_and_nothing_that_does_not_divide():
    ten_heads = vision_row("tnt-b").before
    found = {(one.tensor_degree, one.pipeline_stages) for one in admissible_layouts(ten_heads, 20)}
    assert found == {(2, 10), (5, 4), (10, 2)}
    with_copies = set(admissible_layouts(ten_heads, 20, replicas=True))
    assert Layout(data_replicas=20) in with_copies
    assert Layout(tensor_degree=5, pipeline_stages=2, data_replicas=2) in with_copies
    assert {one.gpus for one in with_copies} == {20}


def test_the_best_layout_is_the_fastest_of_all_that_are_admitted():
    vit = vision_row("vit-own").before
    for replicas in (False, True):
        best = best_layout(vit, 8, replicas=replicas)
        assert best is not None
        every = {one: training_seconds(vit, one) for one in admissible_layouts(vit, 8, replicas=replicas)}
        assert best.predicted_seconds == min(every.values()) == every[best.layout]
        assert best.speed_up == training_seconds(vit, Layout()) / best.predicted_seconds
        forward = best_layout(vit, 8, replicas=replicas, training=False)
        assert forward is not None
        assert forward.predicted_seconds == forward_seconds(vit, forward.layout)


def test_without_communication_the_speed_up_of_replicas_is_the_number_of_gpus():
    free = Assumptions(latency_seconds=0.0, node_bandwidth=1e30, network_bandwidth=1e30)
    found = speed_up(vision_row("vit-own").before, free, replicas=True)
    speeds = {gpus: one.speed_up for gpus, one in found.items() if one}
    assert speeds == pytest.approx({gpus: gpus for gpus in (1, 2, 4, 8, 16, 32, 64)})


def test_gpus_beyond_the_ceiling_have_no_layout():
    """Ten heads and twelve layers take at most 2 of 64 by heads, which leaves 32 stages."""
    found = speed_up(vision_row("tnt-b").before)
    assert {gpus for gpus, one in found.items() if one is None} == {32, 64}
    assert found[1] is not None
    assert found[1].speed_up == 1


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        (Layout(tensor_degree=3), "heads"),
        (Layout(pipeline_stages=4), "pipeline_stages"),
        (Layout(data_replicas=9), "batch"),
        (Layout(data_replicas=3, pipeline_stages=2), "batch"),
    ],
)
def test_a_layout_that_the_shape_or_the_batch_does_not_admit_is_refused(layout: Layout, field: str):
    for refused in (check_layout, forward_seconds, training_seconds):
        with pytest.raises(BadInput) as caught:
            refused(VIT, layout, SIMPLE)
        assert caught.value.field == field


@pytest.mark.parametrize("field", ["tensor_degree", "pipeline_stages", "data_replicas"])
def test_a_layout_without_gpus_is_refused(field: str):
    with pytest.raises(BadInput, match=f"{field} is 0: must be at least 1"):
        Layout(**{field: 0})
    with pytest.raises(BadInput, match="gpus is 0"):
        next(admissible_layouts(VIT, 0))


@pytest.mark.parametrize("field", Assumptions.__dataclass_fields__)
def test_an_impossible_assumption_is_refused_by_name(field: str):
    impossible = type(getattr(Assumptions(), field))(-1)
    with pytest.raises(BadInput, match=f"{field} is {impossible}: must"):
        Assumptions(**{field: impossible})


@pytest.mark.parametrize("value", [0.0, 1.01, float("nan")])
def test_an_impossible_utilisation_is_refused(value: float):
    with pytest.raises(BadInput, match="utilisation is"):
        Assumptions(utilisation=value)


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, group: dict[str, Any]) -> Callable[..., None]:
    """The command, with what four processes found before in the place of new measurements."""
    app = typer.Typer()
    app.callback()(lambda: None)
    parallelism_command.register(app)
    asked: list[tuple[Any, ...]] = []

    def known(shape: Any, degree: int, **what: Any) -> dict[str, Any]:
        asked.append((shape, degree, what))
        name = "gpt2" if isinstance(shape, LanguageShape) else "vit"
        return dict(group["measured"][name, degree])

    monkeypatch.setattr(parallelism, "measure", known)

    def run(*options: str) -> list[tuple[Any, ...]]:
        app(["parallelism", *options], standalone_mode=False)
        return asked

    return run  # type: ignore[return-value]


def test_the_command_prints_a_line_per_degree(command: Callable[..., Any], capsys: pytest.CaptureFixture[str]):
    asked = command("--reduced", "--degree", "1,2", "--degree", "4", "--degree", "2", "--batch", "5", "--timeout", "7")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["degree", "difference", "relative", "all-reduces", "bytes", "seconds"]
    assert [line.split()[0] for line in lines] == ["1", "2", "4"]
    assert lines[1].split()[3:5] == ["6", f"{6 * BATCH * 17 * 32 * 4:,}"]
    assert ("more processes than cores" in lines[2]) is (physical_cores() < 4)
    assert [(degree, what["batch"]) for _, degree, what in asked] == [(1, 5), (2, 5), (4, 5)]
    assert {what["timeout_seconds"] for *_, what in asked} == {7.0}


@pytest.mark.parametrize("arm", ["before", "after"])
def test_the_command_measures_the_ends_of_the_rows(command: Callable[..., Any], arm: str):
    ((shape, *_),) = command("--arm", arm, "--degree", "1")
    assert shape == getattr(vision_row("vit-own"), arm)
    _, (text, _, what) = command("--arm", arm, "--degree", "2", "--row", "gpt2", "--tokens", "7")
    assert (text.depth, text.heads, text.d_model) == {
        "before": ((12,), (12,), (768,)), "after": ((4,), (16,), (768,)),
    }[arm]  # fmt: skip
    assert what["tokens"] == 7


def test_a_record_lies_beside_those_of_other_machines_and_is_never_written_over(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    options = ("--reduced", "--results", str(tmp_path), "--profile", "smoke")
    command(*options, "--degree", "1,2")
    found = records.load(tmp_path, "smoke", "tensor_parallel")
    assert [record["plan"]["degree"] for record in found] == [1, 2]
    record = found[1]
    assert record["run_id"].startswith("vit-own.before.reduced.degree-2.batch-")
    assert record["metrics"]["all_reduces"] == 6
    assert record["seconds"]["forward_seconds"]["median"] > 0
    assert (record["plan"]["row"], record["plan"]["shape"]["heads"]) == ("vit-own", [12])
    assert record["parameters"] == count_parameters(Shape.from_dict(record["plan"]["shape"]))
    with pytest.raises(BadInput, match="has a record already"):
        command(*options, "--degree", "4,2")
    assert len(records.load(tmp_path, "smoke", "tensor_parallel")) == 2
    monkeypatch.setattr(recording, "machine", lambda: {"processor": "Another", "cores": 3})
    command(*options, "--degree", "2")
    names = {one["run_id"] for one in records.load(tmp_path, "smoke", "tensor_parallel")}
    assert any(name.endswith(".float32.cpu.another-3-cores") for name in names)
    assert len(names) == 3


def test_the_records_of_one_gpu_and_of_another_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recording, "machine", lambda: {"processor": "P", "cores": 3})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Accelerator X")
    subject = recording.Subject(row="gpt2", arm="after", reduced=False, shape=GPT2)
    request = Request(shape=GPT2, degree=2, batch=1, device="cuda")
    assert (
        recording.run_id(subject, request)
        == f"gpt2.after.degree-2.batch-1.tokens-{GPT2.positions}.float32.cuda.accelerator-x.p-3-cores"
    )


def test_processes_that_fail_end_the_command_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def failing(*_: Any, **__: Any) -> None:
        raise ProcessesFailed("process 1 of 2 was killed by SIGKILL")

    monkeypatch.setattr(parallelism, "measure", failing)
    with pytest.raises(typer.Exit) as caught:
        parallelism_command.parallelism(reduced=True, degree=["2"])
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == "heads-for-depth: degree 2: process 1 of 2 was killed by SIGKILL\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--row", "volo-1"), "row is 'volo-1': use one of xcit-m"),
        (("--row", "xcit-m"), "family is 'xcit': tensor parallelism splits vit, deit, gpt2"),
        (("--arm", "middle"), "arm is 'middle': use one of before, after"),
        (("--degree", "two"), "degree is 'two': give whole numbers of at most 9 digits"),
        (("--degree", "0"), "degree is 0: must be at least 1"),
        (("--degree", "1,5"), "heads is 12: cannot be split over 5 processes"),
        (("--profile", "full"), "profile is 'full': use one of smoke, cpu, gpu"),
        (("--dtype", "int4"), "dtype is 'int4': use one of float32, bfloat16"),
    ],
)
def test_a_bad_option_is_refused_before_anything_is_measured(
    command: Callable[..., Any], options: tuple[str, ...], sentence: str
):
    with pytest.raises(BadInput, match=sentence):
        command("--reduced", *options)
