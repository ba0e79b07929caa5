"""`gradmux schemes`: the table of schemes, or one of them explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.options import Settings, command, pass_settings
from cli.output import facts, print_json, stdout, table

if TYPE_CHECKING:
    from orchestrator.schemes.scheme import Parameter, SchemeInfo


@command("schemes", example="gradmux schemes m-sgc")
@click.argument("name", required=False)
@pass_settings
def schemes_command(settings: Settings, name: str | None) -> None:
    """List every scheme with its parameters, load, delay and limits; with NAME explain one."""
    from orchestrator.schemes import registry

    if name is not None:
        info = registry.get(name)
        print_json(_document(info)) if settings.json else _explain(info)
        return
    registry.load_plugins()
    infos = list(registry.REGISTRY.values())
    print_json([_document(info) for info in infos]) if settings.json else _list(infos)


def _list(infos: list[SchemeInfo]) -> None:
    rows = [(info.name, info.title, _spelled(info.parameters), info.load, info.delay) for info in infos]
    console = stdout()
    console.print(table(("scheme", "idea", "parameters", "load", "delay T"), rows))
    console.print(
        "n: workers; load: fraction of the batch that a worker processes in one round. More: gradmux schemes NAME"
    )


def _explain(info: SchemeInfo) -> None:
    told = [
        (info.name, info.title),
        ("constraints", info.constraints),
        ("load", info.load),
        ("delay T", info.delay),
        ("tolerates", info.tolerates),
        ("costs", info.costs),
        ("do not use", info.avoid),
        ("source", info.source),
        ("by hand", info.example),
    ]
    console = stdout()
    console.print(facts([(label, text) for label, text in told if text]))
    if info.parameters:
        rows = [(p.letter, p.name, p.kind.__name__, _default(p), _meaning(p)) for p in info.parameters]
        console.print()
        console.print(table(("letter", "name", "type", "default", "meaning"), rows))


def _spelled(parameters: tuple[Parameter, ...]) -> str:
    return ", ".join(p.letter if p.letter == p.name else f"{p.letter} ({p.name})" for p in parameters)


def _default(parameter: Parameter) -> str:
    return "must be given" if parameter.default is None else str(parameter.default)


def _meaning(parameter: Parameter) -> str:
    return f"{parameter.meaning} ({', '.join(parameter.choices)})" if parameter.choices else parameter.meaning


def _document(info: SchemeInfo) -> dict[str, Any]:
    """Everything that the registry says about one scheme."""
    parameters = [
        {
            "name": p.name,
            "letter": p.letter,
            "type": p.kind.__name__,
            "default": p.default,
            "meaning": p.meaning,
            "choices": list(p.choices),
        }
        for p in info.parameters
    ]
    texts = ("name", "title", "constraints", "load", "delay", "tolerates", "costs", "avoid", "source", "example")
    return {**{key: getattr(info, key) for key in texts}, "parameters": parameters}
