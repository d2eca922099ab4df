"""Explain: why a key misses, by the nearest stored keys and the ingredients in which they differ."""

import math
from typing import Final, cast

from graphcache_service.core.callers import Caller
from graphcache_service.core.services import Services
from graphcache_service.db import compiles, graphs
from graphcache_wire import GraphKey
from graphcache_wire.graphs import CompileState, Difference, Explanation, NearKey

NEAREST: Final = 5
SHAPE: Final = ("e_hot", "h", "f", "bucket")


def ingredients(key: GraphKey) -> dict[str, str]:
    """A key as a flat list of what it is made of."""
    plain = {name: str(getattr(key, name)) for name in ("kind", *SHAPE, "toolchain")}
    return plain | {f"options.{name}": value for name, value in key.options.items()}


def differences(asked: GraphKey, stored: GraphKey) -> list[Difference]:
    """The ingredients in which two keys differ, in the order of the key's fields."""
    ours, theirs = ingredients(asked), ingredients(stored)
    return [
        Difference(ingredient=name, asked=ours.get(name), stored=theirs.get(name))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    ]


def distance(asked: GraphKey, stored: GraphKey) -> tuple[int, float]:
    """The number of differing ingredients, then how far apart the shapes are on a scale of ratios."""
    apart = sum(abs(math.log(getattr(asked, name) / getattr(stored, name))) for name in SHAPE)
    return len(differences(asked, stored)), apart


def summary(state: str, nearest: list[NearKey]) -> str:
    """One sentence for people."""
    if state == "ready":
        return "this key is stored"
    if state in ("queued", "leased"):
        return f"this key is not stored yet: its compile is {state}"
    if state == "failed":
        return "this key has a kept failure: see its graph for the log, and resolve with retry_failed to try again"
    if not nearest:
        return "this key was never asked for, and no graph of any key is stored"
    names = [one.ingredient for one in nearest[0].differences]
    return f"this key was never asked for; the nearest stored key differs in {', '.join(names)}"


async def explain(services: Services, caller: Caller, key: GraphKey) -> Explanation:
    """How a key stands, and the stored keys nearest to it."""
    caller.require("read")
    async with services.database.scan() as session:
        found = (await compiles.standings(session, caller.readable(), [key.digest])).get(key.digest)
        stored = await graphs.similar(session, caller.readable(), key)
    others = sorted((one for one in stored if one.digest != key.digest), key=lambda one: distance(key, one))
    nearest = [
        NearKey(key_digest=one.digest, key=one, state="ready", differences=differences(key, one))
        for one in others[:NEAREST]
    ]
    state = "absent" if found is None else cast(CompileState, found.compile.state)
    return Explanation(key_digest=key.digest, key=key, state=state, summary=summary(state, nearest), nearest=nearest)


async def explain_digest(services: Services, caller: Caller, key_digest: str) -> Explanation:
    """The same for a digest; one that nobody asked for tells nothing about its key."""
    caller.require("read")
    async with services.database.read() as session:
        key = await compiles.key_of(session, key_digest)
    if key is not None:
        return await explain(services, caller, key)
    text = "nobody asked for a key of this digest: ask with the whole key, since a digest alone tells nothing about it"
    return Explanation(key_digest=key_digest, key=None, state="absent", summary=text, nearest=[])
