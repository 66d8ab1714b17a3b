"""`edgekit serve`: the model behind OpenAI's API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.options import (
    Context,
    DraftTokens,
    Json,
    PrefixCache,
    Speculate,
    Threads,
    complete_bundle,
    globals_of,
)
from edgekit.cli.output import out
from edgekit.cli.run import count_or_text


def serve(
    ctx: typer.Context,
    bundle: Annotated[
        str | None,
        typer.Argument(
            metavar="[BUNDLE]",
            autocompletion=complete_bundle,
            help="A bundle by name or path; the embedded model `nano` when left out.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port; 0 is any free one.")
    ] = 8080,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar="EDGEKIT_API_KEY",
            help="What clients must show.",
            show_default=False,
            show_envvar=True,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The model's name; the bundle's if left out."),
    ] = None,
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=4, metavar="N", help="Answers at once.")
    ] = 1,
    queue: Annotated[
        int, typer.Option("--queue", min=0, metavar="N", help="Requests that may wait.")
    ] = 32,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=1, metavar="SECONDS", help="A request may take so long."),
    ] = 600.0,
    prefix_cache: PrefixCache = None,
    prefix_dir: Annotated[
        Path | None,
        typer.Option(
            "--prefix-dir",
            metavar="DIR",
            file_okay=False,
            help="Folder where computed prompts outlive a restart.",
            show_default=False,
        ),
    ] = None,
    context: Context = None,
    threads: Threads = None,
    speculate: Speculate = None,
    draft_tokens: DraftTokens = None,
    json: Json = False,
) -> None:
    """Serve a model with OpenAI's API, and Anthropic's.

    Sampling settings, such as EDGEKIT_TEMPERATURE, are what requests get that do not say. Stops on
    Ctrl-C or SIGTERM, once running answers are done.
    """
    from edgekit.cli.chat import locate_bundle, prefix_bytes, sampling
    from edgekit.runtime.serve.server import ServerConfig, require_packages
    from edgekit.runtime.serve.server import serve as run_server

    out.json = json
    require_packages()
    settings = globals_of(ctx).settings(
        context=context,
        threads=threads,
        prefix_cache=prefix_cache,
        speculate=speculate.value if speculate is not None else None,
        draft_tokens=count_or_text(draft_tokens),
    )
    values = settings.values
    path = locate_bundle(settings, bundle)
    config = ServerConfig(
        bundle=path,
        host=host,
        port=port,
        api_key=api_key or None,
        name=name,
        slots=slots,
        queue=queue,
        timeout=timeout,
        threads=values.threads,
        speculate=values.speculate,
        draft_tokens=None if values.draft_tokens == "auto" else values.draft_tokens,
        prefix_bytes=prefix_bytes(settings, path),
        prefix_dir=prefix_dir.absolute() if prefix_dir is not None else None,
        change_sampling=lambda base: sampling(settings, base),
    )
    if not config.is_local and config.api_key is None:
        out.warn(f"anybody who reaches {host} can use this server")
        out.hint("pass --api-key")

    def ready(address: str) -> None:
        if out.json:
            out.json_line({"type": "listening", "address": address})
        else:
            out.note(f"serving on {address}/v1, Ctrl-C stops")

    run_server(config, ready)
