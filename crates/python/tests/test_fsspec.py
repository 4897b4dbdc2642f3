"""fsspec's own suites, and libraries that come by it, on real files."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pickle
import shutil
import threading
import time
from pathlib import Path

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from conftest import Server, options_of
from dafs.fsspec import DafsFileSystem


@pytest.fixture
def fs(url: str) -> DafsFileSystem:
    return DafsFileSystem(url, options=options_of(url))


class Fixtures(AbstractFixtures):
    @pytest.fixture
    def fs(self, url: str) -> DafsFileSystem:
        return DafsFileSystem(url, options=options_of(url))

    @pytest.fixture
    def fs_path(self, directory: str) -> str:
        return directory


class TestCopy(AbstractCopyTests, Fixtures):
    pass


class TestGet(AbstractGetTests, Fixtures):
    pass


class TestPut(AbstractPutTests, Fixtures):
    pass


class TestPipe(AbstractPipeTests, Fixtures):
    pass


class TestOpen(AbstractOpenTests, Fixtures):
    pass


def test_the_entry_points_are_found(server: Server, directory: str) -> None:
    for url in (f"{server.tcp}{directory}/x", f"dafs+shm://{server.socket}!{directory}/x"):
        with fsspec.open(url, "wb") as file:
            file.write(b"by its URL")
        fs, path = fsspec.url_to_fs(url)
        assert isinstance(fs, DafsFileSystem) and path == f"{directory}/x"
        assert fs.cat_file(path) == b"by its URL"
        assert fsspec.url_to_fs(fs.unstrip_protocol(path)) == (fs, path)
        with fsspec.open(url, "rt") as file:
            assert file.read() == "by its URL"
    assert fsspec.get_filesystem_class("dafs+tls") is DafsFileSystem


def test_many_small_files_at_once(fs: DafsFileSystem, directory: str) -> None:
    contents = {f"{directory}/many/{index}": os.urandom(index % 300) for index in range(1000)}
    fs.pipe(contents)
    assert fs.cat(list(contents)) == contents
    assert fs.cat(f"{directory}/many", recursive=True) == contents
    assert fs.cat(f"{directory}/many/99*") == {
        path: content
        for path, content in contents.items()
        if path.rpartition("/")[2].startswith("99")
    }
    with pytest.raises(FileNotFoundError):
        fs.cat([*contents, f"{directory}/none"])
    some = [f"{directory}/many/1", f"{directory}/none"]
    assert list(fs.cat(some, on_error="omit")) == some[:1]
    assert isinstance(fs.cat(some, on_error="return")[some[1]], FileNotFoundError)
    assert fs.cat(some[0]) == contents[some[0]]
    fs.rm(f"{directory}/many", recursive=True)
    assert not fs.exists(f"{directory}/many")


def test_ranges(fs: DafsFileSystem, directory: str) -> None:
    path = f"{directory}/x"
    fs.pipe_file(path, b"0123456789")
    for start, end in ((2, 5), (None, 3), (7, None), (-3, None), (2, -2), (5, 2), (8, 100)):
        assert fs.cat_file(path, start, end) == b"0123456789"[start:end]
    assert fs.cat_ranges([path, path], [0, 4], [2, 6]) == [b"01", b"45"]
    assert (fs.head(path, 3), fs.tail(path, 3)) == (b"012", b"789")
    assert fs.read_block(path, 2, 3) == b"234"


def test_names(fs: DafsFileSystem, directory: str) -> None:
    fs.pipe_file(f"{directory}/a/b/c", b"123")
    assert fs.ls(f"{directory}/a", detail=False) == [f"{directory}/a/b"]
    info = fs.info(f"{directory}/a/b/c")
    assert (info["type"], info["size"], info["name"]) == ("file", 3, f"{directory}/a/b/c")
    assert fs.isdir(f"{directory}/a") and fs.isfile(f"{directory}/a/b/c")
    assert fs.find(directory) == [f"{directory}/a/b/c"]
    assert fs.glob(f"{directory}/**/c") == [f"{directory}/a/b/c"]
    assert fs.du(directory) == 3
    fs.mv(f"{directory}/a/b/c", f"{directory}/a/d")
    fs.mv(f"{directory}/a", f"{directory}/e", recursive=True)
    assert fs.cat_file(f"{directory}/e/d") == b"123"
    fs.cp(f"{directory}/e", f"{directory}/f", recursive=True)
    assert fs.cat_file(f"{directory}/f/d") == b"123"
    assert abs(fs.modified(f"{directory}/f/d").timestamp() - time.time()) < 3600
    key = fs.ukey(f"{directory}/f/d")
    fs.pipe_file(f"{directory}/f/d", b"456")
    assert fs.ukey(f"{directory}/f/d") != key
    with pytest.raises(OSError):
        fs.rmdir(f"{directory}/e")
    fs.rm(f"{directory}/e", recursive=True)
    assert fs.ls(directory, detail=False) == [f"{directory}/f"]
    with pytest.raises(FileNotFoundError):
        fs.info(f"{directory}/e")


def test_transactions(fs: DafsFileSystem, directory: str) -> None:
    with fs.transaction:
        with fs.open(f"{directory}/x", "wb") as file:
            file.write(b"all of it")
        assert not fs.exists(f"{directory}/x")
    assert fs.cat_file(f"{directory}/x") == b"all of it"
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open(f"{directory}/x", "wb") as file:
            file.write(b"nothing of it")
        raise RuntimeError
    assert fs.cat_file(f"{directory}/x") == b"all of it"
    assert fs.ls(directory, detail=False) == [f"{directory}/x"]


def test_file_systems_and_files_are_pickled(fs: DafsFileSystem, directory: str) -> None:
    fs.pipe_file(f"{directory}/x", b"0123456789")
    assert pickle.loads(pickle.dumps(fs)) == fs
    with fs.open(f"{directory}/x") as file:
        assert file.read(4) == b"0123"
        with pickle.loads(pickle.dumps(file)) as other:
            assert other.read() == b"456789"


def test_pyarrow(fs: DafsFileSystem, directory: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    table = pa.table({"key": list(range(50_000)), "text": [f"row {i}" for i in range(50_000)]})
    pq.write_table(table, f"{directory}/t.parquet", filesystem=fs, row_group_size=5_000)
    assert pq.read_table(f"{directory}/t.parquet", filesystem=fs).equals(table)
    few = pq.read_table(
        f"{directory}/t.parquet", filesystem=fs, columns=["key"], filters=[("key", "<", 10)]
    )
    assert few.column("key").to_pylist() == list(range(10))
    ds.write_dataset(
        table.append_column("part", pa.array([i % 3 for i in range(50_000)])),
        f"{directory}/set", filesystem=fs, format="parquet",
        partitioning=["part"], partitioning_flavor="hive",
    )  # fmt: skip
    read = ds.dataset(f"{directory}/set", filesystem=fs, partitioning="hive")
    assert read.count_rows() == 50_000
    assert read.to_table(filter=ds.field("part") == 1).num_rows == 16_667


def test_pandas(server: Server, directory: str) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": range(1000), "b": [str(i) for i in range(1000)]})
    for url in (f"{server.tcp}{directory}", f"dafs+shm://{server.socket}!{directory}"):
        frame.to_csv(f"{url}/t.csv", index=False)
        assert list(pd.read_csv(f"{url}/t.csv")["a"]) == list(range(1000))
        frame.to_parquet(f"{url}/t.parquet")
        assert pd.read_parquet(f"{url}/t.parquet").equals(frame)


def test_duckdb(fs: DafsFileSystem, directory: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    # Registered file systems have one protocol each.
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    url = f"dafs://{directory}/t.parquet"
    connection.execute(
        f"COPY (SELECT range AS i, range % 7 AS d FROM range(100000)) TO '{url}' (FORMAT parquet)"
    )
    query = f"SELECT d, count(*), sum(i) FROM read_parquet('{url}') GROUP BY d ORDER BY d"
    rows = connection.execute(query).fetchall()
    expected = [(d, len(range(d, 100000, 7)), sum(range(d, 100000, 7))) for d in range(7)]
    assert rows == expected
    csv = f"dafs://{directory}/t.csv"
    fs.pipe_file(f"{directory}/t.csv", b"x,y\n1,2\n3,4\n")
    assert connection.execute(f"SELECT sum(x * y) FROM read_csv('{csv}')").fetchall() == [(14,)]
    connection.close()


def test_zarr(fs: DafsFileSystem, server: Server, directory: str) -> None:
    zarr = pytest.importorskip("zarr")
    np = pytest.importorskip("numpy")
    from zarr.storage import FsspecStore

    values = np.arange(200 * 300, dtype="f8").reshape(200, 300)
    asynchronous = DafsFileSystem(fs.server, options=fs.options, asynchronous=True)
    store = FsspecStore(asynchronous, path=f"{directory}/z.zarr")
    made = zarr.create_array(store, shape=values.shape, chunks=(20, 30), dtype="f8")
    made[:] = values
    read = zarr.open_array(FsspecStore(asynchronous, path=f"{directory}/z.zarr"), mode="r")
    assert (read[:] == values).all()
    assert (read[15:45, 100:200] == values[15:45, 100:200]).all()
    by_url = zarr.open_array(f"{server.tcp}{directory}/z.zarr", mode="r")
    assert (by_url[::50, ::50] == values[::50, ::50]).all()


def test_xarray(server: Server, directory: str) -> None:
    xr = pytest.importorskip("xarray")
    np = pytest.importorskip("numpy")
    pytest.importorskip("zarr")
    data = xr.Dataset({"t": (("x", "y"), np.arange(12.0).reshape(3, 4))}, {"x": [1, 2, 3]})
    url = f"{server.tcp}{directory}/x.zarr"
    data.to_zarr(url, consolidated=False)
    assert xr.open_zarr(url, consolidated=False).load().equals(data)


# ---- what other implementations have destroyed ----------------------------------------------


@pytest.fixture
def local(server: Server, directory: str) -> str:
    """The served directory of the test, as it is on the disk."""
    return os.path.join(server.data, directory.lstrip("/"))


def put_tree(top: str) -> None:
    os.makedirs(f"{top}/precious/sub")
    os.makedirs(f"{top}/d/inner")
    os.makedirs(f"{top}/loop/below")
    for name in ("precious/a", "precious/sub/b", "d/x", "loop/f"):
        with open(f"{top}/{name}", "w") as file:
            file.write(name)
    os.symlink("../precious", f"{top}/d/link")
    os.symlink("nowhere", f"{top}/d/dangling")
    os.symlink("precious", f"{top}/toplink")
    os.symlink("gone", f"{top}/topdangling")
    os.symlink("..", f"{top}/loop/below/up")


def test_removal_never_goes_through_a_link(fs: DafsFileSystem, directory: str, local: str) -> None:
    put_tree(local)
    for name in ("d", "toplink", "loop"):
        fs.rm(f"{directory}/{name}", recursive=True)
        assert not os.path.lexists(f"{local}/{name}")
        assert os.path.exists(f"{local}/precious/a") and os.path.exists(f"{local}/precious/sub/b")
    fs.rm(f"{directory}/topdangling")
    assert os.listdir(local) == ["precious"]
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{directory}/topdangling")


def test_removal_goes_by_handles_whatever_takes_a_directorys_place(
    fs: DafsFileSystem, directory: str, local: str
) -> None:
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    os.mkdir(f"{local}/precious")
    kept = [f"{local}/precious/{number}" for number in range(16)]
    for name in kept:
        Path(name).touch()

    def race(one: bytes, other: bytes, ends: threading.Event) -> None:
        while not ends.is_set():
            exchange(-100, one, -100, other, 2)

    for number in range(40):
        # A directory and a link out of the tree, each in the other's place by turns.
        inner, link = f"{local}/{number}/tree/d", f"{local}/{number}/link"
        os.makedirs(f"{inner}/below")
        for name in range(16):
            Path(f"{inner}/{name}").touch()
        os.symlink("../../precious", link)
        ends = threading.Event()
        racing = threading.Thread(target=race, args=(os.fsencode(inner), os.fsencode(link), ends))
        racing.start()
        try:
            # Something may have come back meanwhile.
            with contextlib.suppress(OSError):
                fs.rm(f"{directory}/{number}/tree", recursive=True)
        finally:
            ends.set()
            racing.join()
        assert all(map(os.path.exists, kept))


def test_the_root_of_a_server_is_not_emptied(
    fs: DafsFileSystem, directory: str, local: str, server: Server
) -> None:
    put_tree(local)
    for root in ("/", "//", "/.", f"{server.tcp}/", ["/", f"{directory}/d"], [f"{directory}/d", "/"]):
        with pytest.raises(OSError, match="name its entries") as failure:
            fs.rm(root, recursive=True)
        assert failure.value.errno == errno.EBUSY
        assert os.path.exists(f"{local}/d/x") and os.path.exists(f"{local}/precious/sub/b")
    for root in ("/", "/..", directory + "/.."):
        with pytest.raises(OSError):
            fs.session.rmtree(root)
        assert os.path.exists(f"{local}/d/x")
    with pytest.raises(NotADirectoryError):
        fs.session.rmtree(f"{directory}/toplink")
    fs.session.rmtree(f"{directory}/d")
    assert not os.path.exists(f"{local}/d") and os.path.exists(f"{local}/precious/a")


def test_removal_of_some_depths_keeps_the_rest(
    fs: DafsFileSystem, directory: str, local: str
) -> None:
    os.makedirs(f"{local}/d/e/f")
    with pytest.raises(OSError, match="not empty"):
        fs.rm(f"{directory}/d", recursive=True, maxdepth=1)
    assert os.path.isdir(f"{local}/d/e/f")


def test_walks_end_where_links_lead_upwards(
    fs: DafsFileSystem, directory: str, local: str, tmp_path: Path
) -> None:
    put_tree(local)
    beside = fsspec.filesystem("file")
    found = fs.find(f"{directory}/loop")
    assert [name.removeprefix(directory) for name in found] == [
        name.removeprefix(local) for name in beside.find(f"{local}/loop")
    ]
    assert fs.isdir(f"{directory}/toplink")
    fs.get(f"{directory}/loop", str(tmp_path / "got"), recursive=True)
    assert [file for _, _, files in os.walk(tmp_path) for file in files] == ["f"]
    fs.mv(f"{directory}/topdangling", f"{directory}/moved")
    assert os.readlink(f"{local}/moved") == "gone"


def test_a_copy_onto_its_source_changes_nothing(
    fs: DafsFileSystem, directory: str, local: str
) -> None:
    path, here = f"{directory}/f", f"{local}/f"
    with open(here, "w") as file:
        file.write("the only copy")
    os.link(here, f"{local}/hard")
    os.symlink("f", f"{local}/soft")
    for name in ("f", "./f", "hard", "soft"):
        with pytest.raises(shutil.SameFileError, match="the same file"):
            fs.cp_file(path, f"{directory}/{name}")
        with pytest.raises(shutil.SameFileError):
            fs.get_file(path, f"{local}/{name}")
        with pytest.raises(shutil.SameFileError):
            fs.put_file(f"{local}/{name}", path)
    # What the server has not brought to its disk yet makes no difference.
    fs.pipe_file(path, b"another content")
    with pytest.raises(shutil.SameFileError):
        fs.get_file(path, here)
    fs.mv(path, f"{directory}//f")
    assert fs.cat_file(path) == b"another content"
    assert fs.cat_file(f"{directory}/hard") == b"another content"
    # Another file is replaced, however long it was.
    fs.pipe_file(f"{directory}/g", b"x" * 100)
    fs.cp_file(path, f"{directory}/g")
    assert fs.cat_file(f"{directory}/g") == b"another content"


def test_a_copy_that_fails_leaves_what_was_there(
    fs: DafsFileSystem, directory: str, local: str, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.write_text("old")
    os.mkdir(f"{local}/d")
    for missing in ("missing", "none/x"):
        for get in (fs.get_file, fs.get, fs.download):
            with pytest.raises(OSError):
                get(f"{directory}/{missing}", str(kept))
            assert kept.read_text() == "old"
            with pytest.raises(OSError):
                get(f"{directory}/{missing}", str(tmp_path / "fresh"))
            assert not (tmp_path / "fresh").exists()
    fs.pipe_file(f"{directory}/f", b"old")
    for put in (fs.put_file, fs.put):
        with pytest.raises(OSError):
            put(str(tmp_path / "missing"), f"{directory}/f")
    with pytest.raises(OSError):
        fs.cp_file(f"{directory}/missing", f"{directory}/f")
    assert fs.cat_file(f"{directory}/f") == b"old"


def test_a_name_that_is_there_is_no_pattern(
    fs: DafsFileSystem, directory: str, local: str
) -> None:
    for name in ("k1", "k[1]", "q1/in", "q[1]/in", "m1", "m[1]", "?", "x*"):
        os.makedirs(os.path.dirname(f"{local}/{name}"), exist_ok=True)
        with open(f"{local}/{name}", "w") as file:
            file.write(name)
    fs.rm(f"{directory}/k[1]")
    fs.rm(f"{directory}/q[1]", recursive=True)
    fs.mv(f"{directory}/m[1]", f"{directory}/moved")
    fs.rm(f"{directory}/x*")
    assert sorted(os.listdir(local)) == ["?", "k1", "m1", "moved", "q1"]
    # A pattern is one where no such name is.
    fs.rm(f"{directory}/[km]1")
    assert sorted(os.listdir(local)) == ["?", "moved", "q1"]
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{directory}/[km]1")
