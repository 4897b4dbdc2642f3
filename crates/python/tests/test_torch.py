"""PyTorch on the processor: tensors, datasets and distributed checkpoints."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import pytest

import dafs
from conftest import Server, options_of

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402

from dafs.torch import RecordDataset, StorageReader, StorageWriter  # noqa: E402


def test_tensors_are_read_into(url: str, directory: str) -> None:
    session = dafs.connect(url, own_memory="straight", **options_of(url))
    source = torch.arange(1 << 18, dtype=torch.float32).to(torch.bfloat16).reshape(512, 512)
    with session.open(f"{directory}/x", "w+b", buffering=0) as file:
        before = session.counters()
        assert file.write_at(source, 0) == 1 << 19
        target = torch.zeros_like(source)
        assert file.readinto_at(target, 0) == 1 << 19
        assert torch.equal(source, target)
        over = torch.frombuffer(session.alloc(1 << 19), dtype=torch.bfloat16).view(512, 512)
        assert file.readinto_at(over, 0) == 1 << 19
        assert file.readinto_at(over[100:101], 0) == 1024
        assert torch.equal(source[:1], over[100:101])
        assert session.counters().copies == before.copies
        with pytest.raises(ValueError, match="contiguous"):
            file.readinto_at(target.T, 0)
        with pytest.raises(ValueError, match="meta"):
            file.readinto_at(torch.empty(10, device="meta"), 0)
    session.close()


@pytest.fixture
def records(session: dafs.Session, directory: str) -> Any:
    everything = torch.arange(5 * 1000 * 6, dtype=torch.int32).view(5, 1000, 2, 3)
    for shard in range(5):
        header = b"header" if shard % 2 == 0 else b"HEADER"
        content = header + everything[shard].numpy().tobytes()
        session.write_bytes(f"{directory}/shard-{shard}", content)
    return everything


def test_records_lie_over_registered_memory(url: str, directory: str, records: Any) -> None:
    place = url.rstrip("/") + directory
    options = options_of(url)
    dataset = RecordDataset(
        place, (2, 3), torch.int32, header=6, block_bytes=10_000, options=options
    )
    read = list(dataset)
    assert len(read) == 5000
    assert torch.equal(torch.stack(read), records.view(-1, 2, 3))
    assert dataset._place.session.counters().copies == 0
    batched = RecordDataset(
        place, (2, 3), torch.int32, header=6, batch=64, block_bytes=10_000, options=options
    )
    assert torch.equal(torch.cat(list(batched)), records.view(-1, 2, 3))
    assert {len(batch) for batch in batched} == {64, 1000 % 64}
    with pytest.raises(ValueError, match="left behind"):
        list(RecordDataset(place, (7,), torch.int32, header=6, options=options))


def test_workers_part_the_shards(url: str, directory: str, records: Any) -> None:
    dataset = RecordDataset(
        url.rstrip("/") + directory, (2, 3), torch.int32, header=6, options=options_of(url)
    )
    # The workers have sessions of their own, whoever has one before the fork.
    assert len(dataset.names()) == 5
    loader = torch.utils.data.DataLoader(dataset, batch_size=100, num_workers=2)
    read = torch.cat(list(loader))
    assert torch.equal(read.view(-1, 6).sort(0).values, records.view(-1, 6))


def state(seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        "model": {
            "weight": torch.randn(300, 500),
            "half": torch.randn(77).to(torch.bfloat16),
            "scalar": torch.tensor(3.5),
            "empty": torch.empty(0, 4),
            "strided": torch.randn(40, 50).T,
        },
        "step": seed,
        "name": "text",
    }


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name, tensor in one["model"].items():
        assert torch.equal(tensor, other["model"][name]), name
    assert (one["step"], one["name"]) == (other["step"], other["name"])


def test_a_checkpoint_is_read_back(
    session: dafs.Session, url: str, directory: str
) -> None:
    place, options = f"{url.rstrip('/')}{directory}/a/step", options_of(url)
    with pytest.raises(CheckpointException, match="no such file"):
        dcp.load(state(), storage_reader=StorageReader(place, options))
    for seed in (1, 2):
        saved = state(seed)
        dcp.save(saved, storage_writer=StorageWriter(place, options))
        loaded = state(0)
        reader = StorageReader(place, options)
        dcp.load(loaded, storage_reader=reader)
        assert_equal(saved, loaded)
        # What the one before has is gone: a file of the rank's and the metadata.
        assert len(session.listdir(f"{directory}/a/step")) == 2
    # A model in which the tensors are others takes its part.
    part = {"model": {"half": torch.zeros(77, dtype=torch.float32)}}
    dcp.load(part, storage_reader=StorageReader(place, options))
    assert torch.equal(part["model"]["half"], saved["model"]["half"].float())


def ranks(rank: int, world: int, rendezvous: str, place: str, options: dict[str, Any]) -> None:
    dist.init_process_group("gloo", f"file://{rendezvous}", rank=rank, world_size=world)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(5)
    whole = torch.randn(10, 12)
    saved = {"w": distribute_tensor(whole, mesh, [Shard(0)])}
    dcp.save(saved, storage_writer=StorageWriter(place, options))
    # Parted otherwise, it is read in parts of what was written.
    for dimension in (0, 1):
        loaded = {"w": distribute_tensor(torch.zeros(10, 12), mesh, [Shard(dimension)])}
        dcp.load(loaded, storage_reader=StorageReader(place, options))
        assert isinstance(loaded["w"], DTensor)
        assert torch.equal(loaded["w"].full_tensor(), whole)
    dist.destroy_process_group()


def test_ranks_write_and_read_together(server: Server, url: str, directory: str) -> None:
    place = f"{url.rstrip('/')}{directory}/step"
    with tempfile.TemporaryDirectory() as local:
        arguments = (2, os.path.join(local, "rendezvous"), place, options_of(url))
        mp.spawn(ranks, arguments, nprocs=2)
    names = os.listdir(server.data / directory[1:] / "step")
    assert len(names) == 3
