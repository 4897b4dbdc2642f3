"""DAFS for PyTorch: records from shards in registered memory, and distributed checkpoints.

Data is transferred directly between the server and the memory of tensors. Each process makes its
own session when it first needs one, so datasets and readers may be forked and pickled.
"""

from __future__ import annotations

import math
import os
import pickle
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader as _StorageReader
from torch.distributed.checkpoint.storage import StorageWriter as _StorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.utils.data import IterableDataset, get_worker_info

from . import Session, connect

__all__ = ["RecordDataset", "StorageReader", "StorageWriter"]


class _Place:
    """A directory on a server, and this process's session with it."""

    def __init__(self, url: str, options: dict[str, Any] | None) -> None:
        self.url, self.options = url, dict(options or {})
        self._session: Session | None = None
        self._pid = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_pid": 0}

    @property
    def session(self) -> Session:
        if self._session is None or self._pid != os.getpid() or self._session.lost:
            self._session, self._pid = connect(self.url, **self.options), os.getpid()
        return self._session

    def path(self, name: str) -> str:
        return posixpath.join(self.session.root, name)


# ---- records ------------------------------------------------------------------------------


class RecordDataset(IterableDataset[torch.Tensor]):
    """Records of the same shape and type, stored one after the other in shards.

    Whole blocks are read into registered memory, and the returned tensors use this memory, so no
    byte is copied in this process. The memory of a block is freed when its last tensor is gone.
    Shards are distributed over the ranks of a process group and the workers of a ``DataLoader``.

    :param url: URL of the directory that contains the shards.
    :param shards: names of the shards; by default all files of the directory, sorted by name.
    :param shape: shape of a record.
    :param dtype: type of the elements of a record.
    :param header: length in bytes of the header of each shard.
    :param batch: number of records to return at once, fewer at the end of a shard; ``None`` for
        single records without a batch dimension.
    :param block_bytes: approximate number of bytes to read at once.
    :param options: options of :func:`dafs.connect`.
    """

    def __init__(
        self,
        url: str,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        shards: Sequence[str] | None = None,
        header: int = 0,
        batch: int | None = None,
        block_bytes: int = 8 << 20,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._place = _Place(url, options)
        self.shape, self.dtype = tuple(shape), dtype
        self.shards = None if shards is None else list(shards)
        self.header, self.batch = header, batch
        self.record_bytes = math.prod(self.shape) * dtype.itemsize
        if self.record_bytes <= 0:
            raise ValueError("a record has no bytes")
        together = batch or 1
        # Whole batches, so that no batch spans two blocks.
        self._block = max(1, block_bytes // (self.record_bytes * together)) * together

    def names(self) -> list[str]:
        """Returns the names of all shards."""
        if self.shards is not None:
            return self.shards
        entries = self._place.session.scandir(self._place.session.root)
        return sorted(entry.name for entry in entries if entry.is_file())

    def _own(self) -> list[str]:
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        if dist.is_available() and dist.is_initialized():
            index, count = index + dist.get_rank() * count, count * dist.get_world_size()
        return self.names()[index::count]

    def __iter__(self) -> Iterator[torch.Tensor]:
        for name in self._own():
            for block in self._blocks(name):
                yield from block.split(self.batch) if self.batch else block.unbind()

    def _blocks(self, name: str) -> Iterator[torch.Tensor]:
        session, offset = self._place.session, self.header
        with session.open(self._place.path(name), "rb", buffering=0) as file:
            left, rest = divmod(file.stat().st_size - self.header, self.record_bytes)
            if left < 0 or rest:
                raise ValueError(f"{name}: {rest} bytes are left after the last record")
            while left:
                count = min(self._block, left)
                memory = session.alloc(count * self.record_bytes, zeroed=False)
                read = file.readinto_at(memory, offset)
                if read != count * self.record_bytes:
                    raise EOFError(f"{name} has become shorter while it was read")
                yield torch.frombuffer(memory, dtype=self.dtype).view(count, *self.shape)
                offset, left = offset + read, left - count


# ---- checkpoints ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """Where an item of a checkpoint is stored. Tensors are stored as they are in memory."""

    name: str
    offset: int
    length: int
    dtype: torch.dtype | None = None
    sizes: tuple[int, ...] = ()


class StorageWriter(_StorageWriter):
    """Writes a distributed checkpoint into a directory on a server: one file per rank, and
    ``.metadata``, which gets its name after everything else is on stable storage.

    :param url: URL of the directory, which is created.
    :param options: options of :func:`dafs.connect`.
    """

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._place = _Place(url, options)
        self._save = uuid.uuid4().hex

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._place = _Place(os.fspath(checkpoint_id), self._place.options)
        self._save = uuid.uuid4().hex

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise NotImplementedError("checkpoints are written by all ranks together")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self._place.session.makedirs(self._place.session.root, exist_ok=True)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        # Use names that belong to this save, so that an earlier checkpoint in this directory stays
        # complete until it is replaced.
        name = self._save
        return [
            replace(plan, storage_data=f"{name}.{rank}.data") for rank, plan in enumerate(plans)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        name = plan.storage_data
        session = self._place.session
        results: list[WriteResult] = []
        offset = 0
        with session.open(self._place.path(name), "wb", buffering=0) as file:
            gathered, batch = 0, session.batch()
            for item in plan.items:
                stored, content = self._item(name, offset, item, planner)
                for at, piece in _pieces(content):
                    batch.write_from(file, offset + at, piece)
                results.append(
                    WriteResult(
                        index=item.index, size_in_bytes=stored.length, storage_data=stored
                    )
                )
                offset += -(-stored.length // _ALIGNMENT) * _ALIGNMENT
                gathered += stored.length
                if gathered >= _GATHERED:
                    # Limit the memory for data that was copied from another device.
                    _check(batch.run())
                    gathered = 0
            _check(batch.run())
            # Needed only for an empty file; written data is stable already.
            file.commit()
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _item(
        self, name: str, offset: int, item: WriteItem, planner: SavePlanner
    ) -> tuple[_Stored, memoryview]:
        data = planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            assert isinstance(data, BytesIO)
            content = data.getbuffer()
            return _Stored(name, offset, content.nbytes), content
        assert isinstance(data, torch.Tensor)
        tensor = data.detach().cpu().contiguous()
        content = _bytes(tensor)
        stored = _Stored(name, offset, content.nbytes, tensor.dtype, tuple(tensor.shape))
        return stored, content

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {
            result.index: result.storage_data for some in results for result in some
        }
        metadata.storage_meta = self.storage_meta()
        session, path = self._place.session, self._place.path
        before = _names_in(session, path(_METADATA))
        with session.open(path(f"{_METADATA}.{self._save}"), "wb") as file:
            pickle.dump(metadata, file)
            file.commit()
        session.rename(path(f"{_METADATA}.{self._save}"), path(_METADATA))
        # The new metadata does not refer to these files.
        for name in before - _names_in(session, path(_METADATA)):
            session.unlink(path(name))

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._save)

    @property
    def checkpoint_id(self) -> str:
        return self._place.url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _is_url(checkpoint_id)


class StorageReader(_StorageReader):
    """Reads a checkpoint of :class:`StorageWriter` directly into its tensors.

    As with PyTorch's own reader, the metadata is a pickle: only read checkpoints that you trust.

    :param url: URL of the directory.
    :param options: options of :func:`dafs.connect`.
    """

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        super().__init__()
        self._place = _Place(url, options)
        self._stored: dict[MetadataIndex, _Stored] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._place = _Place(os.fspath(checkpoint_id), self._place.options)
        self._stored = {}

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        content = self._place.session.read_bytes(self._place.path(_METADATA))
        metadata: Metadata = pickle.loads(content)
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @property
    def checkpoint_id(self) -> str:
        return self._place.url

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return _is_url(checkpoint_id)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_name: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_name.setdefault(self._stored[item.storage_index].name, []).append(item)
        session = self._place.session
        for name, items in by_name.items():
            with session.open(self._place.path(name), "rb", buffering=0) as file:
                self._read_items(session, file, items, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read_items(
        self, session: Session, file: Any, items: list[ReadItem], planner: LoadPlanner
    ) -> None:
        batch = session.batch()
        expected: list[int] = []
        ends: list[Any] = []
        for item in items:
            stored = self._stored[item.storage_index]
            if item.type == LoadItemType.BYTE_IO:
                content = bytearray(stored.length)
                offset, target = stored.offset, memoryview(content)
                ends.append((planner.load_bytes, item, content))
            else:
                offset, into, end = _target(stored, item, planner)
                target = _bytes(into)
                ends.append((planner.commit_tensor, item, end))
            for at, piece in _pieces(target):
                batch.read_into(file, offset + at, piece)
                expected.append(piece.nbytes)
        counts = batch.run()
        _check(counts)
        if counts != expected:
            raise EOFError(f"{file.name} is shorter than its checkpoint says")
        for done, item, what in ends:
            if isinstance(what, bytearray):
                done(item, BytesIO(what))
            else:
                done(item, what())


def _target(stored: _Stored, item: ReadItem, planner: LoadPlanner) -> tuple[int, torch.Tensor, Any]:
    """Returns the offset to read from, the tensor to read into, and a function that converts it
    to the requested tensor."""
    target = planner.resolve_tensor(item).detach()
    assert stored.dtype is not None
    offsets, lengths = tuple(item.storage_offsets), tuple(item.lengths)
    if tuple(target.shape) != lengths:
        raise ValueError(f"{item.storage_index}: {lengths} cannot be read into {target.shape}")
    # The rows of a stored tensor are contiguous.
    is_run = offsets[1:] == (0,) * len(offsets[1:]) and lengths[1:] == stored.sizes[1:]
    row = math.prod(stored.sizes[1:]) * stored.dtype.itemsize
    is_own = (
        is_run
        and target.device.type == "cpu"
        and target.is_contiguous()
        and target.dtype == stored.dtype
    )
    if is_own:
        return stored.offset + (offsets[0] * row if offsets else 0), target, lambda: target
    whole = torch.empty(stored.sizes, dtype=stored.dtype)

    def end() -> torch.Tensor:
        part = whole
        for dimension, (start, length) in enumerate(zip(offsets, lengths, strict=True)):
            part = part.narrow(dimension, start, length)
        return target.copy_(part)

    return stored.offset, whole, end


def _bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def _pieces(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    for at in range(0, content.nbytes, _PIECE):
        yield at, content[at : at + _PIECE]


def _check(counts: Sequence[int | OSError]) -> None:
    for count in counts:
        if isinstance(count, OSError):
            raise count


def _names_in(session: Session, path: str) -> set[str]:
    """Returns the files that a checkpoint refers to; none without a valid checkpoint."""
    try:
        metadata = pickle.loads(session.read_bytes(path))
        return {stored.name for stored in metadata.storage_data.values()}
    except (OSError, AttributeError, pickle.UnpicklingError, EOFError):
        return set()


def _is_url(checkpoint_id: str | os.PathLike[str]) -> bool:
    return os.fspath(checkpoint_id).startswith(("dafs://", "dafs+"))


_METADATA = ".metadata"
#: Items begin at multiples of this many bytes.
_ALIGNMENT = 4096
#: The maximum number of bytes of a request.
_PIECE = 64 << 20
#: The number of bytes that are gathered before they are written.
_GATHERED = 512 << 20
