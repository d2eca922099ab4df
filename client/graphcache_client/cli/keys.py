"""A key on the command line: its six fields and its options."""

from typing import Annotated

import typer
from pydantic import ValidationError

from graphcache_client.errors import InvalidInput
from graphcache_wire import GraphKey

KindArgument = Annotated[
    str, typer.Option("--kind", help="moe-experts-fwd, moe-experts-bwd-lora, moe-experts-bwd-full.")
]
EHot = Annotated[int, typer.Option("--e-hot", help="Hot experts of a layer.")]
H = Annotated[int, typer.Option("--h", help="Model size.")]
F = Annotated[int, typer.Option("--f", help="Expert's intermediate size.")]
Bucket = Annotated[int, typer.Option("--bucket", help="Rows the graph is compiled for.")]
ToolchainOption = Annotated[str, typer.Option("--toolchain", help="The exact version; graphcache stats lists them.")]
Options = Annotated[list[str] | None, typer.Option("--option", help="name=value, such as dtype=fp32. May be repeated.")]


def parse_key(
    kind: str, e_hot: int, h: int, f: int, bucket: int, toolchain: str, options: list[str] | None
) -> GraphKey:
    """The key that the options name.

    Raises:
        InvalidInput: names each field that is wrong.
    """
    pairs = [option.partition("=") for option in options or []]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise InvalidInput(f"--option {wrong[0]}: write name=value")
    fields = {"kind": kind, "e_hot": e_hot, "h": h, "f": f, "bucket": bucket, "toolchain": toolchain}
    try:
        return GraphKey.model_validate(fields | {"options": {name: value for name, _, value in pairs}})
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise InvalidInput(f"key: {faults}") from None
