//! A plain passthrough file system over a local directory, by the crate that the mount is made
//! with: what the mount of a server is measured against (`against_passthrough.rs`).
//!
//!     passthrough DIRECTORY MOUNTPOINT [THREADS]
//!
//! It is as good as straightforward code gets: several threads, each with a device of its own,
//! positioned reads and writes, and the largest transfers that the kernel makes. It serves what
//! the measurement needs: look-ups, attributes, files.
//!
//! Invariant: a number of a node stands for one path for as long as it runs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

fn main() -> io::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [directory, place, rest @ ..] = &arguments[..] else {
        eprintln!("usage: passthrough DIRECTORY MOUNTPOINT [THREADS]");
        std::process::exit(2);
    };
    let threads = rest.first().and_then(|count| count.to_str()?.parse().ok());
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("passthrough".into())];
    config.n_threads = Some(threads.unwrap_or(THREADS));
    config.clone_fd = true;
    let served = fuser::spawn_mount(Passthrough::new(directory.into()), Path::new(place), &config)?;
    println!("ready");
    // Until whoever started it lets go.
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    drop(served);
    Ok(())
}

struct Passthrough {
    paths: RwLock<Nodes>,
    files: RwLock<HashMap<u64, Arc<File>>>,
    next_file: Mutex<u64>,
}

#[derive(Default)]
struct Nodes {
    paths: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

impl Passthrough {
    fn new(root: PathBuf) -> Self {
        let nodes = Nodes { paths: vec![root], ..Nodes::default() };
        Self { paths: RwLock::new(nodes), files: RwLock::default(), next_file: Mutex::default() }
    }

    fn path(&self, node: INodeNo) -> PathBuf {
        let nodes = self.paths.read().unwrap_or_else(PoisonError::into_inner);
        nodes.paths.get(node.0 as usize - 1).cloned().unwrap_or_default()
    }

    fn file(&self, handle: FileHandle) -> Option<Arc<File>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(&handle.0).cloned()
    }
}

fn attributes(node: INodeNo, path: &Path) -> io::Result<FileAttr> {
    let found = std::fs::symlink_metadata(path)?;
    let time = |seconds: i64, nanoseconds: i64| {
        SystemTime::UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds as u32)
    };
    let kind = match found.file_type() {
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_symlink() => FileType::Symlink,
        _ => FileType::RegularFile,
    };
    Ok(FileAttr {
        ino: node,
        size: found.size(),
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        crtime: SystemTime::UNIX_EPOCH,
        kind,
        perm: (found.mode() & 0o7777) as u16,
        nlink: found.nlink() as u32,
        uid: found.uid(),
        gid: found.gid(),
        rdev: found.rdev() as u32,
        blksize: 1 << 20,
        flags: 0,
    })
}

impl Filesystem for Passthrough {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wishes = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
        ];
        for wish in wishes {
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(TRANSFER_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let path = self.path(parent).join(name);
        if let Err(error) = std::fs::symlink_metadata(&path) {
            return reply.error(error.into());
        }
        let mut nodes = self.paths.write().unwrap_or_else(PoisonError::into_inner);
        let next = nodes.paths.len() as u64 + 1;
        let number = *nodes.numbers.entry(path.clone()).or_insert(next);
        if number == next {
            nodes.paths.push(path.clone());
        }
        drop(nodes);
        match attributes(INodeNo(number), &path) {
            Ok(found) => reply.entry(&LIFETIME, &found, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        node: INodeNo,
        _file: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match attributes(node, &self.path(node)) {
            Ok(found) => reply.attr(&LIFETIME, &found),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match File::options().read(true).write(writes).open(self.path(node)) {
            Ok(file) => {
                let mut next = self.next_file.lock().unwrap_or_else(PoisonError::into_inner);
                *next += 1;
                let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
                files.insert(*next, Arc::new(file));
                reply.opened(FileHandle(*next), FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _node: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        thread_local! {
            static ROOM: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        let Some(file) = self.file(file) else { return reply.error(Errno::EBADF) };
        ROOM.with_borrow_mut(|room| {
            if room.len() < size as usize {
                room.resize(size as usize, 0);
            }
            match file.read_at(&mut room[..size as usize], offset) {
                Ok(length) => reply.data(&room[..length]),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _node: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        _how: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.file(file) else { return reply.error(Errno::EBADF) };
        match file.write_all_at(data, offset) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.files.write().unwrap_or_else(PoisonError::into_inner).remove(&file.0);
        reply.ok();
    }
}

const THREADS: usize = 4;
const LIFETIME: Duration = Duration::from_secs(1);
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
