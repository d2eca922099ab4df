"""Which version to ask for where no compiler is: such a node cannot name it, so it takes what others compile with."""

from collections.abc import Iterable

from graphcache_runtime.toolchains.base import Toolchain, ToolchainUnavailable
from graphcache_wire import Stats


def version_to_ask_for(toolchain: Toolchain, known: Iterable[str]) -> str:
    """The version of this machine's own compiler; without one, the first known version whose graphs load here.

    Args:
        known: versions, the best first, such as :func:`known_versions`.

    Raises:
        ToolchainUnavailable: there is neither.
    """
    try:
        return toolchain.version()
    except ToolchainUnavailable as error:
        for version in known:
            if version.startswith(toolchain.prefix) and not toolchain.missing_to_load(version):
                return version
        said = f"{error}; and no version of {toolchain.name} is known whose graphs load here"
        raise ToolchainUnavailable(said) from error


def known_versions(stats: Stats) -> list[str]:
    """What workers offer, the latest first; then what is stored, the version of most graphs first.

    Args:
        stats: a service's, grouped by toolchain.
    """
    offered = sorted(stats.toolchains, key=lambda seen: seen.last_claim_age_s)
    stored = sorted(stats.groups, key=lambda group: -group.row.compiles["ready"])
    return [seen.toolchain for seen in offered] + [group.group for group in stored]
