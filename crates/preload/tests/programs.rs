//! Unmodified programs on files that are in DAFS.

// Each test program uses what it needs of it.
#[allow(dead_code)]
mod common;

use common::{Place, has, printed};

#[test]
fn core_utilities_do_what_they_do_elsewhere() {
    if !has(&["bash", "cp", "sha256sum"]) {
        return;
    }
    let place = Place::new();
    std::fs::write(place.beside("octets"), vec![b'q'; 300_000]).unwrap();
    let text = place.script(
        r#"
        cp octets /dafs/a; cmp octets /dafs/a; cp -p /dafs/a /dafs/b; cmp /dafs/a /dafs/b
        mv /dafs/b /dafs/c; test ! -e /dafs/b; mv octets /dafs/moved; mv /dafs/moved octets
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
    // The sum's own value is no matter, only that both ways give it.
    let sum = text.lines().nth(2).unwrap().to_owned();
    told = told.replace(&sum, "a9e7a2ce");
    assert_eq!(told, wanted);
    assert_eq!(std::fs::read(place.local("a")).unwrap().len(), 300_000);
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
    // What is there is there for programs that do not come by DAFS, too.
    let output = std::process::Command::new("sqlite3")
        .arg(place.local("k.db"))
        .arg("select count(*) from a")
        .output();
    assert_eq!(printed(&output.unwrap()).trim(), "45");
}

#[test]
fn repositories_are_made_committed_to_checked_and_cloned() {
    if !has(&["bash", "git"]) {
        return;
    }
    let place = Place::new();
    let text = place.script(
        r#"
        export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git config --global user.email a@b
        git config --global user.name n; git config --global init.defaultBranch main
        cd /dafs; git init -q r; cd r; mkdir -p a/b
        for i in $(seq 100); do echo "file $i" > a/f$i; echo "other $i" > a/b/g$i; done
        git add -A; git commit -qm one; echo more >> a/f1; git commit -qam two
        git mv a/f2 a/moved; git commit -qm three; git fsck --full; git status --short | wc -l
        git gc -q; git fsck --full; git log --oneline | wc -l; cd ..
        git clone -q r c; cd c; git fsck; git log --oneline | wc -l; git diff HEAD~2 --stat | tail -1
        git checkout -q HEAD~1; test -e a/f2; cd ..; git clone -q /dafs/r "$HOME/out"; ls "$HOME/out/a" | wc -l
        "#,
    );
    let told: Vec<&str> = text.lines().map(str::trim).collect();
    let changed = "2 files changed, 1 insertion(+)";
    assert_eq!(told, ["0", "3", "3", changed, "101"]);
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
fn random_calls_do_what_they_do_to_a_local_file() {
    if !has(&["python3"]) {
        return;
    }
    let place = Place::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/random.py");
    // The script names the seed and the call of what differs; it can be run again by hand.
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
