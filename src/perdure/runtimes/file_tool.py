"""Tools for the files of a workspace: read, write, edit and list.

A file is replaced whole: who reads it meanwhile sees the old one or the new one. Edits of one
workspace are made one after the other, so that two calls at once cannot undo each other.
"""

from __future__ import annotations

import mimetypes
import os
import stat
import threading
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct

from perdure.codec import clean_text
from perdure.entry import File, Text
from perdure.runtimes.contract import CallOrigin, Show
from perdure.runtimes.tool import Outcome, Tool, ToolFailure, WorkspaceTool, said
from perdure.runtimes.workspace import Place, Workspace, open_folder

MAX_FILE_BYTES = 64 << 20
MAX_LISTED = 10_000
_PIECE_BYTES = 1 << 20

Path = Annotated[str, Meta(description="relative to the workspace")]
Count = Annotated[int, Meta(ge=1)]


class ReadArguments(Struct, forbid_unknown_fields=True):
    """What `read_file` is given."""

    path: Path
    first_line: Annotated[Count, Meta(description="the first line to read; 1 is the first")] = 1
    line_count: Annotated[Count, Meta(description="how many lines; all if left out")] | None = None


class WriteArguments(Struct, forbid_unknown_fields=True):
    """What `write_file` is given."""

    path: Path
    content: Annotated[str, Meta(description="the whole file, which is written as UTF-8")]


class EditArguments(Struct, forbid_unknown_fields=True):
    """What `edit_file` is given."""

    path: Path
    old: Annotated[str, Meta(min_length=1, description="text that is in the file, exactly")]
    new: Annotated[str, Meta(description="what stands there afterwards")]
    replace_all: Annotated[bool, Meta(description="replace every occurrence")] = False


class ListArguments(Struct, forbid_unknown_fields=True):
    """What `list_files` is given."""

    path: Path = "."
    depth: Annotated[int, Meta(ge=1, le=100, description="how many folders deep")] = 1


class FileTools:
    """The tools over one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._edits = threading.Lock()
        self.tools: Sequence[Tool] = (
            WorkspaceTool(
                "read_file",
                "Reads a text file, or some lines of it; an image is shown.",
                ReadArguments,
                self.read_file,
            ),
            WorkspaceTool(
                "write_file",
                "Writes a whole file; folders that are missing are made.",
                WriteArguments,
                self.write_file,
            ),
            WorkspaceTool(
                "edit_file",
                "Replaces a piece of a text file. The old text must be in it exactly once, "
                "unless replace_all is true.",
                EditArguments,
                self.edit_file,
            ),
            WorkspaceTool(
                "list_files",
                "Lists a folder, one path a line; a folder ends with a slash, a link shows where "
                "it leads.",
                ListArguments,
                self.list_files,
            ),
        )

    async def read_file(self, asked: ReadArguments, origin: CallOrigin, show: Show) -> Outcome:
        """The text of a file, exactly."""
        return await self._workspace.run(self._read, asked)

    async def write_file(self, asked: WriteArguments, origin: CallOrigin, show: Show) -> Outcome:
        """Writes a file whole."""
        return await self._workspace.run(self._write, asked)

    async def edit_file(self, asked: EditArguments, origin: CallOrigin, show: Show) -> Outcome:
        """Replaces text in a file."""
        return await self._workspace.run(self._edit, asked)

    async def list_files(self, asked: ListArguments, origin: CallOrigin, show: Show) -> Outcome:
        """The entries of a folder."""
        return await self._workspace.run(self._list, asked)

    def _read(self, asked: ReadArguments) -> Outcome:
        with self._workspace.at(asked.path) as place:
            with os.fdopen(self._workspace.open_file(place), "rb") as file:
                if asked.first_line == 1 and asked.line_count is None:
                    data = file.read(MAX_FILE_BYTES + 1)
                else:
                    data = _read_lines(file, asked.first_line, asked.line_count)
            if len(data) > MAX_FILE_BYTES:
                raise ToolFailure(
                    f"{clean_text(place.path)} has more than {MAX_FILE_BYTES} bytes: read some "
                    "lines of it, with first_line and line_count"
                )
            try:
                return said(data.decode())
            except UnicodeDecodeError:
                return _not_text(place, data)

    def _write(self, asked: WriteArguments) -> Outcome:
        data = clean_text(asked.content).encode()
        with self._edits, self._workspace.at(asked.path, make_parents=True) as place:
            self._workspace.replace(place, data)
            what = "written" if place.status is None else "replaced"
            return said(f"{clean_text(place.path)}: {what}, {len(data)} bytes")

    def _edit(self, asked: EditArguments) -> Outcome:
        with self._edits, self._workspace.at(asked.path) as place:
            with os.fdopen(self._workspace.open_file(place), "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
            name = clean_text(place.path)
            old, new = clean_text(asked.old).encode(), clean_text(asked.new).encode()
            if len(data) > MAX_FILE_BYTES:
                raise ToolFailure(f"{name} is too big to be edited")
            found = data.count(old)
            if not found:
                raise ToolFailure(f"the old text is not in {name}; read it, it must match exactly")
            if found > 1 and not asked.replace_all:
                raise ToolFailure(
                    f"the old text is {found} times in {name}: give more of what stands around "
                    "it, or set replace_all"
                )
            if len(data) + found * (len(new) - len(old)) > MAX_FILE_BYTES:
                raise ToolFailure(f"{name} would have more than {MAX_FILE_BYTES} bytes")
            status = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
            if place.status is None or _version(status) != _version(place.status):
                raise ToolFailure(f"{name} was changed meanwhile; read it again")
            self._workspace.replace(place, data.replace(old, new))
            return said(f"{name}: {found} replaced")

    def _list(self, asked: ListArguments) -> Outcome:
        with self._workspace.at(asked.path) as place:
            if not place.is_folder:
                raise ToolFailure(f"{clean_text(place.path)} is no folder")
            prefix = "" if place.path == "." else f"{place.path}/"
            listed: list[str] = []
            with closing(_entries(place.name, place.folder, prefix, asked.depth)) as entries:
                for line in entries:
                    if len(listed) == MAX_LISTED:
                        listed.append(f"[… more than {MAX_LISTED}: list a folder of it]")
                        break
                    listed.append(clean_text(line))
            return said("\n".join(listed) or "[the folder is empty]")


def _entries(name: str, folder: int, prefix: str, depth: int) -> Generator[str, None, None]:
    """One line for each entry under a folder, in order of names."""
    descriptor = open_folder(name, folder)
    try:
        for each in sorted(os.listdir(descriptor)):
            try:
                mode = os.stat(each, dir_fd=descriptor, follow_symlinks=False).st_mode
                if stat.S_ISLNK(mode):
                    yield f"{prefix}{each} -> {os.readlink(each, dir_fd=descriptor)}"
                elif stat.S_ISDIR(mode):
                    yield f"{prefix}{each}/"
                    if depth > 1:
                        yield from _entries(each, descriptor, f"{prefix}{each}/", depth - 1)
                else:
                    yield f"{prefix}{each}"
            except (FileNotFoundError, NotADirectoryError):
                continue  # it went meanwhile
            except PermissionError as error:
                yield f"{prefix}{each}: {error.strerror}"
    finally:
        os.close(descriptor)


def _read_lines(file: BinaryIO, first: int, count: int | None) -> bytes:
    """Some lines, ends included; never more than one byte over what a file may have."""
    number, kept, size = 1, list[bytes](), 0
    while (count is None or number < first + count) and size <= MAX_FILE_BYTES:
        piece = file.readline(_PIECE_BYTES)
        if not piece:
            break
        if number >= first:
            kept.append(piece)
            size += len(piece)
        number += piece.endswith(b"\n")
    if number < first and not kept:
        raise ToolFailure(f"there is no line {first}: the file has fewer")
    return b"".join(kept)


def _not_text(place: Place, data: bytes) -> Outcome:
    name = clean_text(place.path)
    media_type = mimetypes.guess_type(place.name)[0] or "application/octet-stream"
    if media_type.startswith("image/"):
        return Outcome((File(media_type, data=data, name=name),))
    return Outcome(
        (Text(f"{name} is not text ({media_type}, {len(data)} bytes); use a command to look"),),
        is_error=True,
    )


def _version(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_ino, status.st_size, status.st_mtime_ns)
