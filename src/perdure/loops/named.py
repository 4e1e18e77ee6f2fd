"""A loop by its name, as `perdure serve --loop NAME` takes it.

`shell` · `acp:NAME` (a command-line agent that is known) · `provider:model` (a model without a
workspace) · `module:attribute` (a loop factory of yours, imported) · the name of a plugin's loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from perdure.errors import ConfigurationError
from perdure.loop import LoopFactory, as_factory
from perdure.loops.agents import SCHEME, agent_loop
from perdure.plugin import Plugins

KNOWN = (
    "known are shell, provider:model (such as anthropic:claude-sonnet-5-5 or "
    "openai-responses:gpt-6.1-sol), acp:NAME (a command-line agent, such as acp:claude) and "
    "module:attribute (a loop factory of yours)"
)

_MODEL_OF_KEY = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5",
    "OPENAI_API_KEY": "openai-responses:gpt-6.1-sol",
}


def loop_by_name(
    name: str, *, workspace: Path, system: str | None = None, plugins: Plugins | None = None
) -> LoopFactory:
    """The loop factory of this name; `workspace` is for loops that work in a folder.

    `system` is for loops over a model. A name without a colon is looked for in `plugins`, which
    without it are all that there are. What else a factory needs, a key say, is missed when it is
    called and not before.

    Raises:
        ConfigurationError: there is no such loop; the text lists what there is.

    """
    if name == "shell":
        from perdure.loops.shell import Shell

        return Shell(workspace)
    first, colon, rest = name.partition(":")
    if not colon and name:
        return _of_plugin(name, Plugins() if plugins is None else plugins)
    if not (first and rest):
        raise ConfigurationError(f"unknown loop {name!r}; {KNOWN}")
    if first == SCHEME:
        return agent_loop(rest, workspace)
    if is_module(name):
        return _imported(first, rest)
    from perdure.loops.model import Model
    from perdure.loops.provider import is_provider

    if not is_provider(first):
        raise ConfigurationError(f"unknown loop {name!r}: no provider {first!r}; {KNOWN}")
    return Model(name, system=system)


def _of_plugin(name: str, plugins: Plugins) -> LoopFactory:
    factory = plugins.loop(name)
    if factory is not None:
        return factory
    plugins.check()  # it may be a broken one that has it
    known = "".join(f", {each}" for each in plugins.loop_names)
    raise ConfigurationError(
        f"unknown loop {name!r}; {KNOWN}" + (f"; of plugins{known[1:]}" if known else "")
    )


def is_module(name: str) -> bool:
    """Whether the name is that of a loop which has to be imported: `module:attribute`."""
    from perdure.loops.provider import is_provider

    first, _, rest = name.partition(":")
    if first == SCHEME:
        return False
    return bool(first) and rest.replace(".", "_").isidentifier() and not is_provider(first)


def default_loop_name(environ: Mapping[str, str]) -> str:
    """`PERDURE_MODEL` if it is set, else a model whose key is set, else the shell."""
    if model := environ.get("PERDURE_MODEL"):
        return model
    if find_spec("pydantic_ai") is not None:
        for variable, model in _MODEL_OF_KEY.items():
            if environ.get(variable):
                return model
    return "shell"


def _imported(module: str, attribute: str) -> LoopFactory:
    unknown = f"unknown loop '{module}:{attribute}': no provider and no module {module!r}; {KNOWN}"
    if not all(name.isidentifier() for name in module.split(".")):
        raise ConfigurationError(unknown)
    try:
        found: object = import_module(module)
    except (Exception, SystemExit) as error:  # the edge of somebody else's module
        name = error.name if isinstance(error, ModuleNotFoundError) else None
        if name is not None and f"{module}.".startswith(f"{name}."):
            raise ConfigurationError(unknown) from error
        raise ConfigurationError(
            f"the module {module!r} of the loop {attribute!r} cannot be imported: {error!r}"
        ) from error
    for each in attribute.split("."):
        if not hasattr(found, each):
            raise ConfigurationError(
                f"unknown loop '{module}:{attribute}': the module {module!r} has no {attribute!r}"
            )
        found = getattr(found, each)
    return as_factory(found, f"'{module}:{attribute}'")
