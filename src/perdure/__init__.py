"""Perdure keeps the conversations of AI agents: durably, once, for any agent library.

A session is an append-only log of entries. Read by `seq` it is a journal, read by `parent_id` a
tree. `perdure.open` gives the durable agent over it; `perdure.open_store` a store by URL.
"""

from perdure.agent import DurableAgent
from perdure.agent import open_agent as open
from perdure.codec import Entry, StoredEntry
from perdure.entry import (
    Compaction,
    Custom,
    File,
    Message,
    Opaque,
    OpaquePart,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    custom,
    ephemeral,
    file,
    image,
    text,
)
from perdure.errors import (
    AppendConflictError,
    AppendRejectedError,
    AppendUncertainError,
    ConfigurationError,
    CursorVoidError,
    EntryNotFoundError,
    FormatTooNewError,
    InvalidSessionIdError,
    JournalCorruptError,
    LoopError,
    MissingExtraError,
    ModelError,
    NoLoopError,
    NothingToSalvageError,
    PerdureError,
    RunEndedError,
    SessionBusyError,
    SessionClosedError,
    SessionDeletedError,
    SessionExistsError,
    SessionNotFoundError,
    StateUnreplayableError,
    StoreError,
    StoreUnavailableError,
    UnknownSchemeError,
    UnrecoverableError,
)
from perdure.events import LifecycleEvent, Publisher, RunEvent
from perdure.fact import Fact
from perdure.handle import Run
from perdure.loop import Loop, LoopContext, LoopFactory
from perdure.store import Receipt, Session, Store
from perdure.stores import open_store
from perdure.tree import Tree, path_to, tree
from perdure.view import model_view, transcript_view

__version__ = "0.1.0"

__all__ = [
    "AppendConflictError",
    "AppendRejectedError",
    "AppendUncertainError",
    "Compaction",
    "ConfigurationError",
    "CursorVoidError",
    "Custom",
    "DurableAgent",
    "Entry",
    "EntryNotFoundError",
    "Fact",
    "File",
    "FormatTooNewError",
    "InvalidSessionIdError",
    "JournalCorruptError",
    "LifecycleEvent",
    "Loop",
    "LoopContext",
    "LoopError",
    "LoopFactory",
    "Message",
    "MissingExtraError",
    "ModelError",
    "NoLoopError",
    "NothingToSalvageError",
    "Opaque",
    "OpaquePart",
    "PerdureError",
    "Publisher",
    "Reasoning",
    "Receipt",
    "Run",
    "RunEndedError",
    "RunEvent",
    "Session",
    "SessionBusyError",
    "SessionClosedError",
    "SessionDeletedError",
    "SessionExistsError",
    "SessionNotFoundError",
    "StateUnreplayableError",
    "Store",
    "StoreError",
    "StoreUnavailableError",
    "StoredEntry",
    "Text",
    "ToolCall",
    "ToolResult",
    "Tree",
    "UnknownSchemeError",
    "UnrecoverableError",
    "custom",
    "ephemeral",
    "file",
    "image",
    "model_view",
    "open",
    "open_store",
    "path_to",
    "text",
    "transcript_view",
    "tree",
]
