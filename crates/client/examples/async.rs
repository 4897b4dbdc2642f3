//! Keeps many requests in flight from one thread, in the two ways that there are.
//!
//! ```text
//! cargo run --release -p dafs-client --example async -- dafs://HOST/DIRECTORY
//! ```
//!
//! Futures suit opens, names and attributes: here all files of a directory are opened at the same
//! time. Submissions to a completion group suit reads and writes: here the first block of each file
//! is read, and replies are handled in the order in which they arrive.

use std::error::Error;
use std::ffi::OsString;
use std::future::{Future, poll_fn};
use std::task::Poll;

use dafs_client::{
    Client, ClientConfig, File, Location, ObjectType, OpenOptions, Session, SessionOptions,
    block_on,
};

const BLOCK_BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("give the URL of a directory")?;
    for (name, bytes) in first_blocks(&url.parse()?)? {
        println!("{:8} bytes of {}", bytes, name.display());
    }
    Ok(())
}

/// Reads the first block of every file in a directory. Returns the names with the numbers of bytes.
pub(crate) fn first_blocks(directory: &Location) -> Result<Vec<(OsString, usize)>, Box<dyn Error>> {
    let client = Client::new(ClientConfig::default())?;
    let session = client.connect(directory, &SessionOptions::default())?;
    let is_file = |kind| kind == ObjectType::Regular;
    let mut names = Vec::new();
    for entry in session.read_dir(&directory.path)? {
        if entry.metadata.is_some_and(|metadata| is_file(metadata.kind)) {
            names.push(entry.name);
        }
    }

    // All opens are in flight at once.
    let paths: Vec<OsString> = names.iter().map(|name| path_of(directory, name)).collect();
    let options = OpenOptions::read();
    let opens = paths.iter().map(|path| session.open_async(path, &options));
    let files = block_on(&client, all(opens)).into_iter().collect::<Result<Vec<File>, _>>()?;

    // All reads are in flight at once. The last argument comes back with the completion.
    let group = client.group();
    let memory = client.allocate(BLOCK_BYTES * files.len())?;
    for (index, file) in files.iter().enumerate() {
        let slice = memory.slice(index * BLOCK_BYTES, BLOCK_BYTES)?;
        session.submit_read(file, 0, slice, group, index as u64)?;
    }
    let mut found = Vec::new();
    while client.wait(group, 1, None) > 0 {
        while let Some(completion) = client.next(group) {
            let name = names[completion.context as usize].clone();
            found.push((name, completion.result?.length as usize));
        }
    }
    client.release_group(group);
    leave(session, files)?;
    Ok(found)
}

fn leave(session: Session, files: Vec<File>) -> Result<(), dafs_client::ClientError> {
    files.into_iter().try_for_each(File::close)?;
    session.disconnect()
}

fn path_of(directory: &Location, name: &OsString) -> OsString {
    let mut path = directory.path.clone();
    path.push("/");
    path.push(name);
    path
}

/// Polls all futures until each is ready, as `futures::future::join_all` does.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.map(Box::pin).collect();
    let mut outputs: Vec<_> = pending.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in pending.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *output = Some(value);
            }
        }
        let is_ready = outputs.iter().all(Option::is_some);
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
