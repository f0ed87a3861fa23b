"""The kernel's shared library: compiled for this processor on first use, kept in a cache folder of the user."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("attention_lanes.cpp")
LARGEST_HEAD_DIM = 16
"""Channels per head up to which the kernel is compiled; each further count adds to the time of compiling.

At this count it takes between a third and two thirds of the time of torch's attention with 17 to 50 tokens, forward
and backward on one thread, and the same time with some 150. With fewer channels it is further ahead.
"""
COMPILERS = ("g++", "clang++", "c++")
"""Tried in this order where the environment variable CXX names none."""
FLAGS = ("-std=c++17", "-O3", "-fno-fast-math", "-fPIC", "-shared", f"-DLARGEST_HEAD_DIM={LARGEST_HEAD_DIM}")
COMPILE_SECONDS = 300
"""After which a compiler counts as failed."""
DIGEST_DIGITS = 16


class LanesUnavailable(RuntimeError):
    """Why the kernel cannot be used here, as text for a record: names no folder of the machine."""


def build() -> Path:
    """The library for this source, compiler and processor: from the cache, or compiled into it.

    Any number of processes may do this at once: a file enters the cache whole, by being renamed. Its name carries the
    digest of its content, so that a damaged file is not loaded but compiled again. Raises LanesUnavailable.
    """
    compiler = _compiler()
    command = [*compiler, *FLAGS, "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"]
    version = _run([*compiler, "--version"])
    key = _digest("\n".join([SOURCE.read_text("utf8"), *command, version, _processor()]).encode())
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _cached(folder, key) or _compile(command, folder, key)
    except OSError as error:
        reason = f"the cache folder cannot be used ({error.strerror}), HEADS_FOR_DEPTH_CACHE can name another"
        raise LanesUnavailable(reason) from error


def cache_folder() -> Path:
    """HEADS_FOR_DEPTH_CACHE, or heads-for-depth in XDG_CACHE_HOME, or in ~/.cache."""
    if named := os.environ.get("HEADS_FOR_DEPTH_CACHE"):
        return Path(named)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "heads-for-depth"
    except RuntimeError as error:
        raise LanesUnavailable("this user has no home, HEADS_FOR_DEPTH_CACHE can name a cache folder") from error


def _compiler() -> list[str]:
    """The command that CXX names, or the first known compiler on PATH."""
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise LanesUnavailable(f"CXX is no command line: {error}") from error
    if named:
        return named
    found = [name for name in COMPILERS if shutil.which(name)]
    if not found:
        raise LanesUnavailable(f"no C++ compiler found: CXX is not set, and PATH has none of {', '.join(COMPILERS)}")
    return found[:1]


def _run(command: Sequence[str]) -> str:
    """What a compiler prints, or LanesUnavailable with its first words of complaint."""
    name = Path(command[0]).name
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=COMPILE_SECONDS
        )
    except OSError as error:
        raise LanesUnavailable(f"the compiler {name} cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise LanesUnavailable(f"the compiler {name} took longer than {COMPILE_SECONDS} seconds") from error
    if run.returncode:
        complaint = run.stderr.replace(f"{SOURCE.parent}{os.sep}", "").strip().partition("\n")[0]
        raise LanesUnavailable(f"the compiler {name} failed with exit status {run.returncode}: {complaint or 'silent'}")
    return run.stdout


def _processor() -> str:
    """What decides which instructions run, so that a cache on a shared home is never read by another processor."""
    told = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags",
            "Features", "CPU implementer", "CPU architecture", "CPU variant", "CPU part")  # fmt: skip
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return " ".join(platform.uname())
    first = info.read_text().partition("\n\n")[0]
    return "\n".join(line for line in first.splitlines() if line.partition(":")[0].strip() in told)


def _cached(folder: Path, key: str) -> Path | None:
    """The library of that key whose content is undamaged."""
    for path in sorted(folder.glob(f"{key}.*.so")):
        if path.name == _name(key, path.read_bytes()):
            return path
    return None


def _compile(command: Sequence[str], folder: Path, key: str) -> Path:
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as temporary:
        built = Path(temporary) / "attention_lanes.so"
        _run([*command, "-o", str(built), str(SOURCE)])
        if not built.is_file():
            raise LanesUnavailable("the compiler left no library")
        return built.rename(folder / _name(key, built.read_bytes()))


def _name(key: str, content: bytes) -> str:
    return f"{key}.{_digest(content)}.so"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGEST_DIGITS]
