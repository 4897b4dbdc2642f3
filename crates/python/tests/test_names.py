"""Names and attributes."""

from __future__ import annotations

import os
import random
import stat

import pytest

import dafs
from conftest import Server


def test_directories(session: dafs.Session, directory: str) -> None:
    session.makedirs(f"{directory}/a/b/c")
    session.makedirs(f"{directory}/a/b/c", exist_ok=True)
    with pytest.raises(FileExistsError):
        session.makedirs(f"{directory}/a/b/c")
    session.write_bytes(f"{directory}/a/file", b"12345")
    session.symlink("file", f"{directory}/a/link")
    entries = {entry.name: entry for entry in session.scandir(f"{directory}/a")}
    assert sorted(entries) == sorted(session.listdir(f"{directory}/a")) == ["b", "file", "link"]
    assert entries["b"].is_dir() and entries["link"].is_symlink()
    assert entries["file"].is_file() and entries["file"].stat().st_size == 5
    assert os.fspath(entries["file"]) == f"{directory}/a/file"
    assert list(session.walk(f"{directory}/a/b")) == [
        (f"{directory}/a/b", ["c"], []),
        (f"{directory}/a/b/c", [], []),
    ]
    with pytest.raises(OSError) as full:
        session.rmdir(f"{directory}/a")
    assert full.value.errno == 39
    with pytest.raises(NotADirectoryError):
        session.rmdir(f"{directory}/a/file")
    with pytest.raises(IsADirectoryError):
        session.unlink(f"{directory}/a/b")
    session.rmtree(f"{directory}/a")
    assert not session.exists(f"{directory}/a")


def test_many_entries(session: dafs.Session, directory: str, server: Server) -> None:
    names = {f"file-{index:04}" for index in range(1500)}
    for name in names:
        (server.data / directory[1:] / name).touch()
    assert set(session.listdir(directory)) == names


def test_renames_and_links(session: dafs.Session, directory: str) -> None:
    session.write_bytes(f"{directory}/a", b"a")
    session.write_bytes(f"{directory}/b", b"b")
    session.mkdir(f"{directory}/sub")
    session.rename(f"{directory}/a", f"{directory}/b")
    session.rename(f"{directory}/b", f"{directory}/sub/c")
    assert session.read_bytes(f"{directory}/sub/c") == b"a"
    session.link(f"{directory}/sub/c", f"{directory}/d")
    assert session.stat(f"{directory}/d").st_nlink == 2
    session.unlink(f"{directory}/sub/c")
    assert session.read_bytes(f"{directory}/d") == b"a"
    with pytest.raises(FileNotFoundError):
        session.rename(f"{directory}/none", f"{directory}/e")


def test_symbolic_links_are_followed_everywhere(session: dafs.Session, directory: str) -> None:
    session.makedirs(f"{directory}/real/below")
    session.write_bytes(f"{directory}/real/below/x", b"found")
    session.symlink("real", f"{directory}/way")
    session.symlink("../below/x", f"{directory}/real/below/up")
    through = f"{directory}/way/below/up"
    assert session.read_bytes(through) == b"found"
    assert session.stat(through).st_size == 5 and session.lstat(through).is_symlink()
    assert session.readlink(through) == "../below/x"
    with session.open(f"{directory}/way/../way/below/x", "rb") as file:
        assert file.read() == b"found"
    session.mkdir(f"{directory}/way/made")
    assert session.is_dir(f"{directory}/real/made")
    session.symlink("loop", f"{directory}/loop")
    with pytest.raises(OSError) as loop:
        session.stat(f"{directory}/loop")
    assert loop.value.errno == 40


def test_attributes(session: dafs.Session, directory: str, server: Server) -> None:
    path = f"{directory}/x"
    session.write_bytes(path, b"123456")
    session.chmod(path, 0o640)
    session.utime(path, ns=(1_000_000_001, 2_000_000_002))
    session.truncate(path, 3)
    session.utime(path, ns=(1_000_000_001, 2_000_000_002))
    found = session.stat(path)
    assert stat.S_IMODE(found.st_mode) == 0o640 and stat.S_ISREG(found.st_mode)
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    local = os.stat(server.data / path[1:])
    assert (found.st_ino, found.st_size, found.st_nlink) == (local.st_ino, 3, 1)
    assert (found.st_uid, found.st_gid) == (local.st_uid, local.st_gid)
    assert session.access(path, os.R_OK) and session.access(path, os.F_OK)
    assert not session.access(f"{path}.none", os.F_OK)


def test_the_root_and_the_file_system(session: dafs.Session, directory: str) -> None:
    assert session.is_dir("/") and directory[1:] in session.listdir()
    # Paths are taken from the root.
    assert session.is_dir(directory[1:])
    system = session.statvfs(directory)
    assert system.total >= system.free >= system.available > 0 and system.name_max >= 255
    with pytest.raises(ValueError):
        session.stat("/a\0b")


def test_errors_are_those_of_the_os_module(session: dafs.Session, directory: str) -> None:
    session.write_bytes(f"{directory}/x", b"")
    with pytest.raises(FileNotFoundError) as missing:
        session.stat(f"{directory}/none")
    assert missing.value.errno == 2 and missing.value.filename == f"{directory}/none"
    assert missing.value.status == "NoEnt"  # type: ignore[attr-defined]
    with pytest.raises(NotADirectoryError):
        session.listdir(f"{directory}/x")
    with pytest.raises(NotADirectoryError):
        session.stat(f"{directory}/x/y")
    with pytest.raises(IsADirectoryError):
        session.open(directory, "wb")
    with pytest.raises(OSError) as long:
        session.write_bytes(f"{directory}/{'n' * 300}", b"")
    assert long.value.errno == 36


def odd_names() -> list[bytes]:
    """Every name of one byte, the longest ones, what looks like escapes, and random ones."""
    chance = random.Random(1)
    names = {bytes([byte]) for byte in range(1, 256)} | {b"\xff" * 255, b"\xee\xbe\x80" * 85}
    names |= {"\uefff".encode(), "\uefc3\uefa9".encode(), "e\u0301".encode(), "\u00e9".encode()}
    for _ in range(60):
        name = chance.randbytes(chance.randint(1, 255))
        names.add(name.replace(b"/", b"_").replace(b"\0", b"_"))
    return sorted(names - {b"/", b".", b".."})


def test_names_of_any_bytes(session: dafs.Session, directory: str, server: Server) -> None:
    here = os.fsencode(directory)
    local = os.path.join(os.fsencode(server.data), here[1:])
    names = odd_names()
    for name in names:
        session.write_bytes(here + b"/" + name, name)
    assert sorted(os.listdir(local)) == names
    # As the os module has it: str with surrogates, or bytes for bytes.
    assert sorted(session.listdir(here)) == names
    assert sorted(map(os.fsencode, session.listdir(directory))) == names
    assert sorted(os.fsencode(entry.name) for entry in session.scandir(here)) == names
    for name in names:
        path = f"{directory}/{os.fsdecode(name)}"
        assert session.stat(path).st_size == len(name)
        with session.open(path, "rb") as file:
            assert file.read() == name and file.name == path
        assert session.read_bytes(path.encode(errors="surrogateescape")) == name
    for old, new in zip(names, names[1:], strict=False):
        session.unlink(here + b"/" + new)
        session.rename(here + b"/" + old, here + b"/" + new)
        session.link(here + b"/" + new, here + b"/" + old)
        session.unlink(here + b"/" + old)
        session.symlink(new, here + b"/" + old)
        assert os.readlink(os.path.join(local, old)) == new
        assert session.readlink(here + b"/" + old) == new
        assert session.readlink(f"{directory}/{os.fsdecode(old)}") == os.fsdecode(new)
        assert session.read_bytes(here + b"/" + old) == names[0]
        session.unlink(here + b"/" + old)
        session.mkdir(here + b"/" + old)
        session.rmdir(here + b"/" + old)
    session.rmtree(here)
    assert not os.path.exists(local)


def test_an_exception_names_a_path_as_the_os_module_would(
    session: dafs.Session, directory: str
) -> None:
    for name in ("caf\udce9", "caf\u00e9", "caf\\xe9"):
        for call in (session.stat, session.mkdir, session.listdir, session.read_bytes):
            with pytest.raises(FileNotFoundError) as missing:
                call(f"{directory}/none/{name}")
            assert missing.value.filename == f"{directory}/none/{name}"
    with pytest.raises(ValueError):
        session.stat(b"/a\0b")
    with pytest.raises(TypeError):
        session.stat(7)  # type: ignore[arg-type]
