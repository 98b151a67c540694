"""Describe the machine of a measurement; run as a script, print the description."""

from __future__ import annotations

import argparse
import platform
from importlib.metadata import version
from pathlib import Path

from bigcons.run.engine import available_cores


def describe() -> dict[str, object]:
    """Return the processor, cores, memory and the versions that affect speed."""
    info = Path("/proc/cpuinfo")
    model = platform.processor()
    if info.exists():
        names = [
            line.partition(":")[2].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    memory = Path("/proc/meminfo")
    kilobytes = int(memory.read_text().split()[1]) if memory.exists() else 0
    packages = ("bigcons", "numpy", "numba", "zarr", "scikit-learn")
    return {
        "processor": model,
        "cores": available_cores(),
        "memory_gb": round(kilobytes / 1e6, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smallest", action="store_true", help="as the other benchmarks; changes nothing here"
    )
    parser.parse_args()
    print(describe())
