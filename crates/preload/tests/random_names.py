"""Random calls on a tree in DAFS and on a local one: both must answer alike, always.

random_names.py DIRECTORY-IN-DAFS LOCAL-DIRECTORY SEED COUNT
"""

import errno
import os
import random
import shutil
import stat
import sys

THERE, HERE, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
r = random.Random(seed)
for top in (THERE, HERE):
    shutil.rmtree(top, ignore_errors=True)
    os.mkdir(top)


def answer(call, top):
    """What a call comes to: its value, or the name of its error."""
    try:
        return call(top)
    except OSError as error:
        return errno.errorcode.get(error.errno, error.errno)


def described(path):
    told = os.lstat(path)
    size = 0 if stat.S_ISDIR(told.st_mode) else told.st_size
    links = 0 if stat.S_ISDIR(told.st_mode) else told.st_nlink
    return stat.filemode(told.st_mode), links, size, told.st_uid, told.st_gid


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def put(path, flags, content, mode):
    file = os.open(path, flags, mode)
    try:
        return os.write(file, content)
    finally:
        os.close(file)


def tree(top):
    found = {}
    for directory, names, files in os.walk(top):
        for name in sorted(names + files):
            path = os.path.join(directory, name)
            text = os.readlink(path) if os.path.islink(path) else None
            found[os.path.relpath(path, top)] = (described(path), text)
    return found


def name():
    return r.choice("abcde")


def path():
    depth = r.choice((1, 1, 2, 2, 2, 3, 4))
    names = [r.choice((name(), name(), name(), name(), "..", ".")) for _ in range(depth - 1)]
    # Nothing leads out of the top.
    whole = "/".join([*names, name()])
    if os.path.normpath(whole).startswith(".."):
        whole = name()
    return whole + ("/" if r.random() < 0.05 else "")


FLAGS = (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_EXCL,
         os.O_RDWR | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_APPEND | os.O_CREAT,
         os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def call():
    """A call at random: what it is, and what does it beneath a top."""
    one, other = path(), path()
    mode = r.choice((0o644, 0o755, 0o600, 0o700, 0o4755, 0o1777, 0o2775))
    flags, content = r.choice(FLAGS), r.randbytes(r.randrange(5000))
    text = r.choice((other, "../" + other, "none", name(), other + "/", "/nowhere/" + other))
    length, moment = r.randrange(10000), r.randrange(1 << 31)
    at = lambda top, beneath: os.path.join(top, beneath)
    calls = [
        ("mkdir", lambda top: os.mkdir(at(top, one), mode)),
        ("mkdir", lambda top: os.mkdir(at(top, one), mode)),
        ("rmdir", lambda top: os.rmdir(at(top, one))),
        ("unlink", lambda top: os.unlink(at(top, one))),
        ("rename", lambda top: os.rename(at(top, one), at(top, other))),
        ("rename", lambda top: os.rename(at(top, one), at(top, other))),
        ("link", lambda top: os.link(at(top, one), at(top, other), follow_symlinks=False)),
        ("symlink", lambda top: os.symlink(text, at(top, one))),
        ("readlink", lambda top: os.readlink(at(top, one))),
        ("put", lambda top: put(at(top, one), flags, content, mode)),
        ("put", lambda top: put(at(top, one), flags, content, mode)),
        ("get", lambda top: contents(at(top, one))),
        ("truncate", lambda top: os.truncate(at(top, one), length)),
        ("chmod", lambda top: os.chmod(at(top, one), mode)),
        ("utime", lambda top: os.utime(at(top, one), (moment, moment))),
        ("lstat", lambda top: described(at(top, one))),
        ("list", lambda top: sorted(os.listdir(at(top, one)))),
        ("mkfifo", lambda top: os.mkfifo(at(top, one), mode)),
        ("access", lambda top: os.access(at(top, one), r_mode)),
        ("real", lambda top: os.path.relpath(os.path.realpath(at(top, one), strict=True),
                                             os.path.realpath(top))),
    ]
    r_mode = r.choice((os.F_OK, os.R_OK, os.W_OK, os.X_OK))
    what, act = r.choice(calls)
    if what in ("put", "get"):
        # A pipe would wait for somebody at its other end.
        real = os.path.realpath(os.path.join(HERE, one))
        if os.path.exists(real) and stat.S_ISFIFO(os.stat(real).st_mode):
            return call()
    return f"{what} {one} {other} {text} {mode:o} {flags:o}", act


for number in range(count):
    what, act = call()
    there, here = answer(act, THERE), answer(act, HERE)
    if there != here:
        sys.exit(f"seed {seed}, call {number}: {what}: {str(there)[:90]}, locally {str(here)[:90]}")
    if number % 200 == 199 and tree(THERE) != tree(HERE):
        sys.exit(f"seed {seed}, call {number}: {tree(THERE)}, locally {tree(HERE)}")
for top in (THERE, HERE):
    shutil.rmtree(top)
