"""What a run ran on: versions, kernel, CPU. Enough for somebody else to judge the figures."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("mininet", "numpy", "click", "pydantic", "scapy", "matplotlib", "pyroute2", "ryu", "os-ken", "eventlet")
PROGRAMS = {
    "ovs-vswitchd": ("ovs-vswitchd", "--version"),
    "zebra": ("/usr/lib/frr/zebra", "--version"),
    "tc": ("tc", "-V"),
    "clang": ("clang", "--version"),
}


def describe_machine() -> dict[str, Any]:
    """Kernel, distribution, CPU model, cores and memory."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {
        "kernel": platform.release(),
        "distribution": release.get("PRETTY_NAME", "unknown"),
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": _first_value("/proc/meminfo", "MemTotal"),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Versions of the Python packages and of the programs that take part."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES if _installed(name)}
    return found | {name: _first_line(argv) for name, argv in PROGRAMS.items()}


def git_revision(repo: Path) -> str:
    """The commit of our own source, with `+dirty` for uncommitted changes; `unknown` outside a checkout."""
    if shutil.which("git") is None or not (repo / ".git").exists():
        return "unknown"
    argv = ["git", "-c", f"safe.directory={repo}", "-C", str(repo)]
    head = subprocess.run([*argv, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    dirty = subprocess.run([*argv, "status", "--porcelain"], capture_output=True, text=True, check=False).stdout.strip()
    return (head or "unknown") + ("+dirty" if dirty else "")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _first_line(argv: tuple[str, ...]) -> str:
    if shutil.which(argv[0]) is None:
        return "not installed"
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


def _first_value(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"
