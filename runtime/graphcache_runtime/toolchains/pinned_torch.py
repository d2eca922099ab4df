"""Whether the torch that is installed is the one that a vendor's package pins. Read from metadata: imports no torch.

A package that registers a device is imported by torch itself (entry points ``torch.backends``). With another torch than
the one it was built for that fails, and ``import torch`` with it.
"""

import os
from importlib.metadata import PackageNotFoundError, entry_points, requires, version

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def wrong_torch(package: str) -> str | None:
    """One sentence where ``package`` pins another torch than the one installed; None where all is well."""
    pins = (line.partition(";")[0].replace(" ", "") for line in requires(package) or [])
    wanted = next((pin.removeprefix("torch==") for pin in pins if pin.startswith("torch==")), None)
    try:
        here = version("torch")
    except PackageNotFoundError:
        return f"{package} {version(package)} needs torch, which is not installed: pip install torch=={wanted}"
    if wanted is None or here.split("+")[0] == wanted:
        return None
    return f"{package} {version(package)} needs torch {wanted}, here is {here}: pip install torch=={wanted}"


def keep_torch_importable() -> None:
    """Call it before the first ``import torch`` of a command that must say what is missing, not die of it."""
    packages = [point.dist.name for point in entry_points(group="torch.backends") if point.dist]
    if any(map(wrong_torch, packages)):
        os.environ[AUTOLOAD] = "0"
