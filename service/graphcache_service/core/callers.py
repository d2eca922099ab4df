"""Caller: who asks, and what it may do. Made by ``core.tokens`` once a request; everything below takes it."""

from dataclasses import dataclass
from typing import Final, Literal

from graphcache_service.core.errors import Forbidden

Scope = Literal["read", "compile", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "compile", "admin")
"""Each contains those before it."""

DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Caller:
    """A token's rights. ``namespace`` is written and read; ``reads`` are read beside it."""

    namespace: str
    scope: Scope
    reads: tuple[str, ...] = ()
    token_id: str | None = None

    def readable(self) -> tuple[str, ...]:
        """Namespaces that may be read, the own one first."""
        return (self.namespace, *(name for name in self.reads if name != self.namespace))

    def require(self, scope: Scope) -> None:
        """Check the scope.

        Raises:
            Forbidden: the token has a lesser one.
        """
        if SCOPES.index(self.scope) < SCOPES.index(scope):
            raise Forbidden(
                f"this needs a token of scope {scope}, and this one has {self.scope}",
                hint=f"ask an administrator for: graphcache token create --scope {scope}",
            )


OPEN_CALLER: Final = Caller(namespace=DEFAULT_NAMESPACE, scope="admin")
"""Everybody, where the service runs without tokens."""
