"""A provider's model by its name, and what a provider's errors mean to whoever runs the loop.

The model layer and the provider's own library are imported when a model is made, not before.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

from perdure.errors import ConfigurationError, MissingExtraError, ModelError, PerdureError

if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.providers import Provider

KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
}
"""The providers of the extra `models`, and the environment variable of each one's key."""

_NO_KEY = "no-key-set"

MIN_SECRET_CHARS = 8
"""What is shorter is no key of a provider, and stands in ordinary words."""


class Connection:
    """A model and its HTTP client: made for one run, so that they belong to one event loop.

    What is dear in a client, reading the trusted certificates, is done once for all.
    """

    def __init__(self, model: Model, clients: Sequence[Any]) -> None:
        self.model = model
        self._clients = clients

    async def __aenter__(self) -> Model:
        await self.model.__aenter__()
        return self.model

    async def __aexit__(self, *details: Any) -> None:
        try:
            await self.model.__aexit__(*details)
        finally:
            for client in self._clients:
                await client.aclose()


def connect(name: str, *, base_url: str | None = None, api_key: str | None = None) -> Connection:
    """The model `provider:model`; another `base_url` for a compatible server. Costs milliseconds.

    The first of a provider imports its library, which takes a second or two. Nothing is sent.

    Raises:
        MissingExtraError: the model layer, or the library of a provider in the extra `models`, is
            not installed.
        ConfigurationError: the provider is not known, its library or its key is missing, or it
            takes no `base_url`. Nothing was sent.

    """
    if find_spec("pydantic_ai") is None:
        raise MissingExtraError(f"the model {name!r}", "models")
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise ConfigurationError(
            f"{name!r} is no model: write provider:model; {_known_providers()}"
        )
    clients: list[Any] = []
    try:
        made = infer_model(name, lambda each: _make_provider(each, base_url, api_key, clients))
        return Connection(made, clients)
    except ImportError as error:
        if provider in KEYS:
            raise MissingExtraError(f"the model {name!r}", "models") from error
        raise ConfigurationError(f"the model {name!r} needs more: {error}") from error
    except UserError as error:
        raise ConfigurationError(f"the model {name!r} cannot be used: {error}") from error


def _make_provider(
    name: str, base_url: str | None, api_key: str | None, clients: list[Any]
) -> Provider[Any]:
    from pydantic_ai.providers import infer_provider_class

    try:
        make = infer_provider_class(name)
    except ValueError as error:
        raise ConfigurationError(f"unknown provider {name!r}; {_known_providers()}") from error
    variable = KEYS.get(name)
    if variable is not None and api_key is None and not os.environ.get(variable):
        if base_url is None:
            raise ConfigurationError(
                f"the provider {name!r} needs a key: set {variable}, or pass api_key=…; "
                "for a compatible server that needs none pass base_url=…"
            )
        api_key = _NO_KEY
    options = {"base_url": base_url, "api_key": api_key}
    given: dict[str, Any] = {
        option: value for option, value in options.items() if value is not None
    }
    if refused := [option for option in given if option not in signature(make.__init__).parameters]:
        raise ConfigurationError(f"the provider {name!r} takes no {refused[0]}")
    if name in KEYS:
        given["http_client"] = _http_client()
        clients.append(given["http_client"])
    return make(**given)


def _http_client() -> Any:
    import httpx2

    return httpx2.AsyncClient(
        verify=_certificates(),
        timeout=httpx2.Timeout(600, connect=10),
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
    )


@cache
def _certificates() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


def is_provider(name: str) -> bool:
    """Whether the model layer knows a provider of this name."""
    if name in KEYS:
        return True
    if find_spec("pydantic_ai") is None:
        return False
    from pydantic_ai.providers import infer_provider_class

    try:
        infer_provider_class(name)
    except ValueError:
        return False
    except ImportError:  # known, and its library is not installed
        return True
    return True


def _known_providers() -> str:
    from pydantic_ai.models import known_model_names

    others = {name.partition(":")[0] for name in known_model_names() if ":" in name} - set(KEYS)
    return f"known are {', '.join(sorted(KEYS))}, and with their own libraries " + ", ".join(
        sorted(name for name in others if not name.startswith("gateway/"))
    )


@contextmanager
def provider_errors(name: str, model: Model, *, only_layer: bool = False) -> Iterator[None]:
    """Turns whatever the model layer or a provider's library raises inside into a `ModelError`.

    A malformed answer may raise anything at all in there, so everything is taken; `only_layer`
    takes what the layer says of the model alone, where somebody's tools run inside, too.
    """
    try:
        yield
    except PerdureError:
        raise
    except Exception as error:  # the edge of foreign code
        if only_layer and not _is_of_layer(error):
            raise
        raise explain(name, error, secret=_key_of(model)) from error


def _is_of_layer(error: Exception) -> bool:
    from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior

    return isinstance(error, ModelAPIError | UnexpectedModelBehavior)


def _key_of(model: Model) -> str | None:
    client = getattr(model, "client", None)
    key = getattr(client, "api_key", None)
    return key if isinstance(key, str) and key != _NO_KEY else None


def explain(name: str, error: Exception, *, secret: str | None = None) -> ModelError:
    """What happened and what to do, without the key."""
    status = getattr(error, "status_code", None)
    said = _said(error)
    if secret and len(secret) >= MIN_SECRET_CHARS:
        said = said.replace(secret, "…")
    advice = _advice(name, error, status, secret)
    code = f" ({status})" if status is not None else ""
    return ModelError(
        f"the model {name!r} failed{code}: {said}. {advice}",
        status=status,
        is_transient=_is_transient(error, status),
        retry_after_s=getattr(error, "retry_after", None),
    )


def _is_transient(error: Exception, status: int | None) -> bool:
    """Whether the same request may succeed later, by the provider's own word where it gave one."""
    from pydantic_ai import exceptions as known

    if (hint := getattr(error, "provider_retry_hint", None)) is not None:
        return bool(hint)
    if isinstance(error, known.ModelQuotaExceededError):
        return False
    passing = (
        known.ModelRateLimitError,
        known.ModelUnavailableError,
        known.ModelServerError,
        known.ModelConnectionError,
        known.ModelRequestTimeout,
        OSError,
    )
    if type(error) is known.UnexpectedModelBehavior:  # it has no class of its own for this
        return "ended without content" in str(error)
    return isinstance(error, passing) or status in (408, 409, 429) or (status or 0) >= 500


def _said(error: Exception) -> str:
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else None
        if isinstance(message, str) and message:
            return message.rstrip(".")
    return (str(error) or type(error).__name__).rstrip(".")


def _advice(name: str, error: Exception, status: int | None, secret: str | None) -> str:
    from pydantic_ai.exceptions import ModelConnectionError, ModelContextWindowExceededError

    again = "What it had finished is stored; send again to go on"
    provider = name.partition(":")[0]
    match status:
        case 401 | 403:
            variable = KEYS.get(provider)
            is_its = variable is not None and secret in (None, os.environ.get(variable))
            return f"Check the key in {variable}" if is_its else "Check the key that it is given"
        case 404:
            hint = getattr(error, "suggested_model_id", None)
            return "Check the model's name" + (f": did you mean {hint!r}?" if hint else "")
        case 413:
            return "The conversation is too long for it: compact the session"
        case 429:
            wait = getattr(error, "retry_after", None)
            return f"Its limit is reached{f'; wait {wait:g} s' if wait else ''}. {again}"
        case 503 | 529:
            return f"It is overloaded. {again}"
    if isinstance(error, ModelContextWindowExceededError):
        return "The conversation is too long for it: compact the session"
    if isinstance(error, ModelConnectionError | OSError):
        return f"The connection was lost or could not be made. {again}"
    return again
