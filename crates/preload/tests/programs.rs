//! Tests unmodified programs on files in DAFS.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{Place, has, printed};

#[test]
fn core_utilities_do_what_they_do_elsewhere() {
    if !has(&["bash", "cp", "sha256sum"]) {
        return;
    }
    let place = Place::new();
    std::fs::write(place.beside("bytes"), vec![b'q'; 300_000]).unwrap();
    let text = place.script(
        r#"
        cp bytes /dafs/a; cmp bytes /dafs/a; cp -p /dafs/a /dafs/b; cmp /dafs/a /dafs/b
        mv /dafs/b /dafs/c; test ! -e /dafs/b; mv bytes /dafs/moved; mv /dafs/moved bytes
        ls -l /dafs | tail -n +2 | awk '{ print $1, $5, $9 }'
        cat /dafs/a | sha256sum | cut -c1-8; sha256sum /dafs/c | cut -c1-8
        dd if=/dev/zero of=/dafs/z bs=4096 count=10 status=none; stat -c '%s %F' /dafs/z
        dd if=/dafs/a of=/dafs/z bs=1000 count=2 seek=1 conv=notrunc status=none
        stat -c %s /dafs/z; truncate -s 5 /dafs/z; stat -c %s /dafs/z
        touch -d '2001-02-03 04:05:06.789 UTC' /dafs/z; TZ=UTC stat -c %y /dafs/z
        chmod 640 /dafs/z; stat -c %a /dafs/z; ln -s z /dafs/link; readlink /dafs/link
        ln /dafs/z /dafs/hard; stat -c '%h %s' /dafs/hard; stat -L -c %s /dafs/link
        mkdir -p /dafs/d/e/f; echo x > /dafs/d/e/x; du -a /dafs/d | wc -l; find /dafs/d | sort
        ! rmdir /dafs/d 2>/dev/null; rm -r /dafs/d; test ! -e /dafs/d
        printf 'b\na\nc\n' > /dafs/s; sort /dafs/s | paste -sd,; sort -o /dafs/s /dafs/s
        head -1 /dafs/s; tail -1 /dafs/s; wc -l < /dafs/s; grep -c a /dafs/s
        realpath /dafs/link; df /dafs | wc -l; cp -r /dafs /dev/shm/$$.copy; rm -r /dev/shm/$$.copy
        "#,
    );
    let told: Vec<&str> = text.lines().collect();
    let wanted = "-rw-r--r-- 300000 a|-rw-r--r-- 300000 c|a9e7a2ce|a9e7a2ce|40960 regular file|40960|5\
        |2001-02-03 04:05:06.789000000 +0000|640|z|2 5|5|4|/dafs/d|/dafs/d/e|/dafs/d/e/f|/dafs/d/e/x\
        |a,b,c|a|c|3|1|/dafs/z|2";
    let mut told = told.join("|");
    // Only check that both ways produce the same sum.
    let sum = text.lines().nth(2).unwrap().to_owned();
    told = told.replace(&sum, "a9e7a2ce");
    assert_eq!(told, wanted);
    assert_eq!(std::fs::read(place.local("a")).unwrap().len(), 300_000);
}

#[test]
fn core_utilities_copy_list_and_install() {
    if !has(&["bash", "cp", "install", "tee", "diff"]) {
        return;
    }
    let place = Place::new();
    let text = place.script(
        r#"
        mkdir -p t/d/e; for i in 1 2 3; do seq $i 500 > t/d/f$i; done; ln -s d/f1 t/l; ln t/d/f1 t/d/e/h
        chmod 640 t/d/f2; chmod 2750 t/d/e; mkfifo t/p; find t -exec touch -h -d '2011-02-03 04:05:06 UTC' {} +
        listed() { (cd "$1"; ls -lR --time-style=full-iso | grep -v ^total); }
        cp -a t /dafs/t; diff <(listed t) <(listed /dafs/t); diff -r --no-dereference t/d /dafs/t/d
        cp -a /dafs/t /dafs/u; diff <(listed t) <(listed /dafs/u)
        cp -a /dafs/u back; diff <(listed t) <(listed back); stat -c %h /dafs/u/d/f1 back/d/e/h
        mv /dafs/u /dafs/v; mv /dafs/v w; diff <(listed t) <(listed w); mv w /dafs/w; test ! -e w
        diff <(listed t) <(listed /dafs/w); diff <(du -a --apparent-size t/d | sort) \
            <(cd /dafs/w/..; du -a --apparent-size w/d | sed s,w/d,t/d, | sort)
        install -D -m 751 t/d/f1 /dafs/in/st/all; stat -c %a /dafs/in/st/all; cmp t/d/f1 /dafs/in/st/all
        seq 5 | tee /dafs/tee1 /dafs/tee2 | tail -n 1; seq 6 9 | tee -a /dafs/tee1 > /dev/null
        cmp <(seq 9) /dafs/tee1; head -c 3 /dafs/tee1; tail -c 4 /dafs/tee1; tail -n +8 /dafs/tee1
        touch -r t/d/f1 /dafs/tee1; stat -c %Y /dafs/tee1; touch /dafs/new; test /dafs/new -nt /dafs/tee1
        chmod -R go= /dafs/t; find /dafs/t -perm /077 ! -type l | wc -l; rm -r /dafs/t /dafs/w
        seq 20000 | shuf | split -l 5000 - /dafs/part.; sort -n -m <(sort -n /dafs/part.aa) \
            <(cat /dafs/part.a[bcd] | sort -n -T /dafs -S 100k) | cmp - <(seq 20000); ls /dafs | wc -l
        dd if=/dafs/tee1 of=/dafs/dd bs=1 skip=2 seek=1 count=4 conv=fsync status=none; od -An -c /dafs/dd
        dd if=/dafs/tee2 of=/dafs/dd oflag=append conv=notrunc status=none; wc -c < /dafs/dd
        "#,
    );
    let told = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let wanted = [
        "2",
        "2",
        "751",
        "5",
        "1",
        "28",
        "9",
        "8",
        "9",
        "1296705906",
        "0",
        "8",
        "\\0 2 \\n 3 \\n",
        "15",
    ];
    assert_eq!(told.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_shell_redirects_and_stands_where_it_says() {
    if !has(&["bash"]) {
        return;
    }
    let place = Place::new();
    let text = place.script(
        r#"
        cd /dafs; pwd; /bin/pwd; mkdir -p in/ner; cd in/ner; /bin/pwd; cd ..; /bin/pwd; cd ../..; /bin/pwd
        cd /dafs; echo one > f; echo two >> f; (echo three >> f); sh -c 'echo four >> f'; cat f
        exec 5>g; echo a >&5; (echo b >&5); sh -c 'echo c >&5'; printf d\\n >&5; exec 5>&-; cat g
        while read -r line; do echo "<$line>"; done < g; cat <<< here; cat < f | wc -l
        { echo out; echo err >&2; } > both 2>&1; cat both; ls in > listing; cat listing
        [ -f f ] && [ -d in ] && [ ! -e no ] && [ -r f ] && echo tests; for x in /dafs/[fg]; do echo $x; done
        printf '#!/bin/sh\necho script $1 $0\n' > run; chmod +x run; ./run 1; /dafs/run 2
        cp /bin/echo prog; ./prog program
        pids=; for j in 1 2 3; do (for i in $(seq 20); do echo "$j $i" >> all; done) & pids="$pids $!"; done
        for p in $pids; do wait $p; done; sort -u all | wc -l
        env -i /bin/sh -c 'echo $DAFS_PRELOAD_MAP' | wc -w
        "#,
    );
    let wanted = [
        "/dafs",
        "/dafs",
        "/dafs/in/ner",
        "/dafs/in",
        "/",
        "one",
        "two",
        "three",
        "four",
        "a",
        "b",
        "c",
        "d",
        "<a>",
        "<b>",
        "<c>",
        "<d>",
        "here",
        "4",
        "out",
        "err",
        "ner",
        "tests",
        "/dafs/f",
        "/dafs/g",
        "script 1 ./run",
        "script 2 /dafs/run",
        "program",
        "60",
        "1",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn archives_come_back_with_all_that_belongs_to_them() {
    if !has(&["bash", "tar", "gzip", "find"]) {
        return;
    }
    let place = Place::new();
    place.script(
        r#"
        mkdir -p t/d/e; for i in $(seq 200); do echo "$i" > t/d/f$i; done; ln -s ../d t/d/e/l
        ln t/d/f1 t/d/e/h; chmod 600 t/d/f2; chmod 4755 t/d/f3; chmod 1777 t/d/e; mkfifo t/pipe
        head -c 1000000 /dev/urandom > t/big; find t -exec touch -h -d '2010-01-02 03:04:05' {} +
        tar cf /dafs/t.tar t; mkdir /dafs/out; tar xpf /dafs/t.tar -C /dafs/out
        diff -r --no-dereference t/d /dafs/out/t/d; cmp t/big /dafs/out/t/big
        told() { (cd "$1"; find t -printf '%p %M %n %s %T@ %l %U %G\n' | grep -v '^t/*d* d' | sort \
            | awk '{ if ($2 ~ /^d/) $4 = ""; print }'); }
        diff <(told .) <(told /dafs/out)
        (cd /dafs/out; tar czf ../again.tgz t); gzip -t /dafs/again.tgz
        mkdir back; tar xpzf /dafs/again.tgz -C back; diff <(told .) <(told back)
        gzip -k /dafs/t.tar; gunzip -c /dafs/t.tar.gz | cmp - /dafs/t.tar
        "#,
    );
}

#[test]
fn databases_are_shared_by_processes_in_both_modes() {
    if !has(&["bash", "sqlite3"]) {
        return;
    }
    let place = Place::new();
    for mode in ["delete", "truncate", "wal"] {
        let text = place.script(&format!(
            r#"
            rm -f /dafs/k.db*; sqlite3 /dafs/k.db 'pragma journal_mode={mode}; create table a(x);'
            work() {{ for i in $(seq 15); do echo "insert into a values($i);"; done \
                | sqlite3 -cmd '.timeout 60000' /dafs/k.db; }}
            pids=; for j in 1 2 3; do work & pids="$pids $!"; done; for p in $pids; do wait $p; done
            sqlite3 /dafs/k.db 'select count(*), sum(x) from a; pragma integrity_check;'
            "#
        ));
        let told: Vec<&str> = text.lines().collect();
        assert_eq!(told, [mode, "45|360", "ok"]);
    }
    // Programs without DAFS can read the file, too.
    let output = std::process::Command::new("sqlite3")
        .arg(place.local("k.db"))
        .arg("select count(*) from a")
        .output();
    assert_eq!(printed(&output.unwrap()).trim(), "45");
}

#[test]
fn a_database_outlives_processes_that_are_killed() {
    if !has(&["bash", "sqlite3"]) {
        return;
    }
    let place = Place::new();
    for mode in ["delete", "wal"] {
        let text = place.script(&format!(
            r#"
            rm -f /dafs/k.db*; sqlite3 /dafs/k.db 'pragma journal_mode={mode}; create table a(x);'
            work() {{ while :; do echo 'insert into a values(1); select 1;'; done; }}
            read_on() {{ while :; do echo 'select count(*) from a where x != 1;'; done; }}
            ask=(sqlite3 -bail -cmd '.timeout 60000' /dafs/k.db)
            lines() {{ cat $1 | wc -l; }}
            : > kept.one; : > kept.two
            for round in 1 2 3; do
                : > seen; before=$(lines 'kept.one kept.two')
                work | "${{ask[@]}}" >> kept.one 2>> errors & one=$!
                work | "${{ask[@]}}" >> kept.two 2>> errors & two=$!
                read_on | "${{ask[@]}}" >> seen 2>> errors & three=$!
                until test $(lines seen) -ge 20 \
                    -a $(lines 'kept.one kept.two') -ge $((before + 20)); do :; done
                kill -KILL $one $two; kill -KILL $three; wait || :
                ! grep -qv '^0$' seen
                "${{ask[@]}}" 'pragma integrity_check'
            done
            ! grep -E 'malformed|I/O' errors
            # A commit that was told is kept.
            "${{ask[@]}}" "select count(*) >= $(lines 'kept.one kept.two') from a where x = 1"
            "#
        ));
        assert_eq!(text.lines().collect::<Vec<_>>(), [mode, "ok", "ok", "ok", "1"]);
    }
}

#[test]
fn memory_is_shared_on_one_host_and_not_with_another() {
    if !has(&["python3"]) {
        return;
    }
    let place = Place::new();
    std::fs::write(place.local("shared"), vec![0; 8192]).unwrap();
    // The same server under another name counts as another host.
    std::os::unix::fs::symlink(place.beside("socket"), place.beside("other")).unwrap();
    let far_url = format!("/dafs=dafs+shm://{}!/", place.beside("other").display());
    let mapping = "import mmap, sys; f = open('/dafs/shared', 'r+b')\n";
    let python = |text: &str| {
        let mut program = place.program("python3");
        program.arg("-c").arg(format!("{mapping}{text}"));
        program
    };
    let mut first = python(
        "m = mmap.mmap(f.fileno(), 0); m[0] = 1; print('mapped', flush=True); sys.stdin.read(1); \
         assert m[1] == 3",
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "mapped\n");
    let near = python("m = mmap.mmap(f.fileno(), 0); assert m[0] == 1; m[1] = 3").output().unwrap();
    printed(&near);
    let far = || {
        let mut program = python("m = mmap.mmap(f.fileno(), 0); print(m[0], m[1])");
        program.env("DAFS_PRELOAD_MAP", &far_url).output().unwrap()
    };
    let refused = far();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("dafs: /dafs/shared: another host"), "{told}");
    assert!(told.contains("BlockingIOError"), "{told}");
    drop(first.stdin.take());
    assert!(first.wait().unwrap().success());
    assert_eq!(printed(&far()), "1 3\n");
}

#[test]
fn what_goes_into_the_file_does_not_come_back_into_memory() {
    if !has(&["python3"]) {
        return;
    }
    let place = Place::new();
    std::fs::write(place.local("shared"), vec![0; 4096]).unwrap();
    // A counter keeps its value while other processes unmap the same page.
    let script = r#"
import mmap, os
def mapped():
    with open('/dafs/shared', 'r+b') as f: return mmap.mmap(f.fileno(), 0)
if os.fork() == 0:
    for turn in range(300):
        m = mapped(); m[4000] = turn % 256; m.close()
    os._exit(0)
m, count = mapped(), 0
while os.waitpid(-1, os.WNOHANG) == (0, 0):
    for _ in range(1000):
        assert m[0:8] == count.to_bytes(8, 'big'), (m[0:8], count)
        count += 1; m[0:8] = count.to_bytes(8, 'big')
print(count > 0)
"#;
    let output = place.program("python3").args(["-c", script]).output().unwrap();
    assert_eq!(printed(&output).trim(), "True");
}

#[test]
fn repositories_are_made_committed_to_checked_and_cloned() {
    if !has(&["bash", "git"]) {
        return;
    }
    let place = Place::new();
    let files = std::env::var("DAFS_GIT_FILES").ok();
    let files = files.map_or(200, |files| files.parse::<usize>().unwrap());
    let text = format!("half={}", files / 2)
        + r#"
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git config --global user.email a@b
        git config --global user.name n; git config --global init.defaultBranch main
        cd /dafs; git init -q r; cd r; mkdir -p a/b
        for i in $(seq $half); do echo "file $i" > a/f$i; echo "other $i" > a/b/g$i; done
        git add -A; git commit -qm one; echo more >> a/f1; git commit -qam two
        git mv a/f2 a/moved; git commit -qm three; git fsck --full; git status --short | wc -l
        git gc -q; git fsck --full; git log --oneline | wc -l; cd ..
        git clone -q r c; cd c; git fsck; git log --oneline | wc -l; git diff HEAD~2 --stat | tail -1
        git checkout -q HEAD~1; test -e a/f2; cd ..; git clone -q /dafs/r "$HOME/out"; ls "$HOME/out/a" | wc -l
        "#;
    let text = place.script(&text);
    let told: Vec<&str> = text.lines().map(str::trim).collect();
    let changed = "2 files changed, 1 insertion(+)";
    let listed = (files / 2 + 1).to_string();
    assert_eq!(told, ["0", "3", "3", changed, &listed]);
}

#[test]
fn mirrors_are_made_once() {
    if !has(&["bash", "rsync"]) {
        return;
    }
    let place = Place::new();
    let text = place.script(
        r#"
        mkdir -p s/d; for i in $(seq 100); do echo "$i" > s/d/f$i; done; ln -s d/f1 s/l
        head -c 500000 /dev/urandom > s/big; rsync -a s/ /dafs/m/; diff -r s /dafs/m
        rsync -ai s/ /dafs/m/ | wc -l; rsync -a /dafs/m/ /dafs/n/; rsync -ai /dafs/m/ /dafs/n/ | wc -l
        echo x >> s/d/f7; rsync -ai --delete s/ /dafs/m/ | wc -l; rsync -a /dafs/m/ back/; diff -r s back
        "#,
    );
    assert_eq!(text.lines().collect::<Vec<_>>(), ["0", "0", "1"]);
}

#[test]
fn python_reads_writes_maps_and_starts_programs() {
    if !has(&["python3"]) {
        return;
    }
    let place = Place::new();
    let output = place.program("python3").args(["-c", PYTHON]).output().unwrap();
    assert_eq!(printed(&output).trim(), "done");
}

#[test]
fn large_files_are_mapped_themselves_where_the_server_hands_them_over() {
    if !has(&["python3"]) {
        return;
    }
    let place = Place::new();
    std::fs::write(place.local("large"), vec![7; 1 << 20]).unwrap();
    let script = r#"
import mmap
maps = []
# A server may not have heard at first that it can call back.
for attempt in range(1000):
    with open('/dafs/large', 'rb') as file:
        maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if '/export/large' in open('/proc/self/maps').read(): break
m = maps[-1]
assert m[:3] == b'\7\7\7' and len(m) == 1 << 20
with open('/dafs/large', 'r+b', buffering=0) as file: file.write(b'new')
assert m[:3] == b'new', m[:3]
with open('/dafs/large', 'r+b') as file:
    shared = mmap.mmap(file.fileno(), 0)
    assert shared[:3] == b'new'
print('/export/large' in open('/proc/self/maps').read())
"#;
    let output = place.program("python3").args(["-c", script]).output().unwrap();
    assert_eq!(printed(&output).trim(), "True");
}

#[test]
fn what_killed_programs_leave_in_memory_is_put_into_the_file_and_removed() {
    if !has(&["python3"]) {
        return;
    }
    let place = Place::new();
    let program = |script: &str| {
        let script = format!("{MAPPED}{script}");
        printed(&place.program("python3").args(["-c", &script]).output().unwrap())
    };
    let script =
        "if os.fork() == 0: print(first(), flush=True); os.kill(os.getpid(), 9)\nos.wait()";
    let left = program(script);
    assert!(left.starts_with("/dev/shm/dafs-"), "{left:?}");
    // The next process that maps a file sweeps.
    program("first('/dafs/other')");
    assert!(!std::path::Path::new(left.trim()).exists());
    // Their changes are in the file, except where it was written later.
    let told = program("print(open('/dafs/mapped', 'rb').read(2))");
    assert_eq!(told.trim(), "b'Ax'");
    program(script);
    program("with open('/dafs/mapped', 'rb+') as f: f.write(b'y' * 4096)");
    let told = program("first('/dafs/other'); print(open('/dafs/mapped', 'rb').read(2))");
    assert_eq!(told.trim(), "b'yy'");
}

/// Maps a file and finds its shared memory.
const MAPPED: &str = r#"
import mmap, os
def first(path='/dafs/mapped'):
    f = open(path, 'wb+'); f.write(b'x' * 4096); f.flush()
    global kept; kept = mmap.mmap(f.fileno(), 0); kept[0] = 65
    return [line.split()[5] for line in open('/proc/self/maps') if '/dev/shm/dafs-' in line][0]
"#;

#[test]
fn random_calls_do_what_they_do_to_a_local_file() {
    if !has(&["python3"]) {
        return;
    }
    let place = Place::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/random.py");
    // The script prints the seed and the call of a difference, so that it can be repeated by hand.
    for seed in 1..=3 {
        let mut program = place.program("python3");
        program.args([script, "/dafs/file"]).arg(place.beside("file"));
        printed(&program.args([&seed.to_string(), "1000"]).output().unwrap());
    }
}

const PYTHON: &str = r#"
import fcntl, glob, mmap, os, pathlib, shutil, subprocess, sys, tempfile, threading
os.makedirs('/dafs/py'); os.chdir('/dafs/py'); assert os.getcwd() == '/dafs/py'
with open('a.txt', 'w') as f: f.write('hello\nworld\n')
assert open('a.txt').read().split() == ['hello', 'world'] and not os.path.exists('/dafs/py/no')
with open('b.bin', 'wb+') as f:
    f.write(b'x' * 10000); f.flush()
    m = mmap.mmap(f.fileno(), 0); m[5:8] = b'abc'; m.flush(); f.seek(0)
    assert f.read(10) == b'xxxxxabcxx'; m.close()
with open('b.bin', 'rb') as f:
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); assert m[4:9] == b'xabcx'; m.close()
shutil.copy('b.bin', 'c.bin'); shutil.copytree('/dafs/py', '/dafs/py2')
assert sorted(os.listdir('/dafs/py2')) == ['a.txt', 'b.bin', 'c.bin']
assert subprocess.run(['cat', 'a.txt'], capture_output=True).stdout == b'hello\nworld\n'
with open('out', 'w') as f: subprocess.run(['echo', 'sub'], stdout=f, check=True)
assert open('out').read() == 'sub\n' and sorted(glob.glob('*.bin')) == ['b.bin', 'c.bin']
assert subprocess.check_output(['pwd'], cwd='/dafs/py2').strip() == b'/dafs/py2'
with tempfile.NamedTemporaryFile(dir='.') as f: f.write(b'1'); f.flush(); assert os.path.getsize(f.name) == 1
def work(i):
    for _ in range(20):
        with open(f't{i}', 'ab') as f: f.write(b'1')
        assert os.stat('a.txt').st_size == 12
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
assert [os.path.getsize(f't{i}') for i in range(4)] == [20] * 4
f = open('lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
child = os.fork()
if child == 0:
    try: fcntl.lockf(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
for p in pathlib.Path('/dafs/py2').rglob('*'): p.unlink()
os.rmdir('/dafs/py2')
open('mod.py', 'w').write('value = 42\n'); sys.path.insert(0, '/dafs/py')
import mod; assert mod.value == 42
print('done')
"#;
