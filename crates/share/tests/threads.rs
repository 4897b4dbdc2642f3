//! Threads that share a client of a real server.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dafs_client::{
    Client, ClientConfig, ClientError, File, Location, LockKind, LockOptions, OpenOptions, Session,
    SessionOptions,
};
use dafs_server::{LedgerError, Server, ServerConfig, ServerStats, Stopper};
use dafs_share::{Entered, Forked, Held, SharedClient};
use dafs_store::local::{LocalConfig, LocalStore};

/// A server in a thread of this process.
struct Served {
    location: Location,
    place: tempfile::TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<ServerStats, LedgerError>>>,
}

impl Served {
    fn start(transport: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let exported = place.path().join("export");
        std::fs::create_dir(&exported).unwrap();
        let store = LocalStore::new(&LocalConfig::new(exported, place.path().join("state")));
        let address = match transport {
            "tcp" => dafs_dat::Address::Tcp("127.0.0.1:0".parse().unwrap()),
            _ => dafs_dat::Address::Shm(place.path().join("socket")),
        };
        let mut config = ServerConfig { listen: vec![address], ..ServerConfig::default() };
        config.access.squash = Some(dafs_store::local::Squash::Nobody);
        config.sessions.authentication.anonymous = Some(
            dafs_types::Credentials::plain(
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw(),
            )
            .unwrap(),
        );
        let server = Server::new(&config, Arc::new(store.unwrap())).unwrap();
        let url = match &server.addresses()[0] {
            dafs_dat::Address::Tcp(address) => format!("dafs://{address}/"),
            _ => format!("dafs+shm://{}!/", place.path().join("socket").display()),
        };
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { location: Location::parse(&url).unwrap(), place, stopper, thread }
    }

    fn path(&self) -> &Path {
        self.place.path()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stopper.stop();
        let _ = self.thread.take().unwrap().join();
    }
}

/// # Safety
/// As for [`SharedClient::enter`].
unsafe fn inside<T: Send>(
    client: &SharedClient,
    call: impl FnOnce(&Entered<'_>) -> T,
) -> Result<T, Forked> {
    // SAFETY: the caller makes the promises of `enter`, and the output is `Send`.
    let entered = unsafe { client.enter() }?;
    Ok(call(&entered))
}

fn connect(client: &SharedClient, location: &Location) -> Held<Session> {
    let connect = |entered: &Entered<'_>| {
        let session = entered.connect(location, &SessionOptions::default());
        session.map(|session| entered.hold(session))
    };
    // SAFETY: the session is wrapped in `Held`.
    unsafe { inside(client, connect) }.unwrap().unwrap()
}

fn open(session: &Held<Session>, path: &str) -> Held<File> {
    let open = |entered: &Entered<'_>| {
        let file = session.get(entered).open(path, &OpenOptions::write());
        file.map(|file| entered.hold(file))
    };
    // SAFETY: the file is wrapped in `Held`.
    unsafe { inside(session.client(), open) }.unwrap().unwrap()
}

/// Writes a block of a file and reads it back, waiting like the other threads.
fn there_and_back(file: &Held<File>, block: u64, fill: u8) {
    let client = file.client();
    let done = async |entered: &Entered<'_>| {
        let buffer = entered.allocate(BLOCK as usize)?;
        buffer.write(0, &[fill; BLOCK as usize]);
        let file = file.get(entered);
        let slice = || buffer.slice(0, BLOCK as usize);
        file.write_async(block * BLOCK, slice()?).await?;
        buffer.write(0, &[0; BLOCK as usize]);
        file.read_async(block * BLOCK, slice()?).await?;
        let mut bytes = [0; BLOCK as usize];
        buffer.read(0, &mut bytes);
        assert_eq!(bytes, [fill; BLOCK as usize]);
        Ok::<(), ClientError>(())
    };
    // SAFETY: nothing of the client leaves the future.
    unsafe { client.run(done) }.unwrap().unwrap();
}

const BLOCK: u64 = 4096;
const THREADS: u64 = 4;
const ROUNDS: u64 = 200;

fn many_threads(transport: &str) {
    let served = Served::start(transport);
    let client = SharedClient::new(ClientConfig::default()).unwrap();
    let session = connect(&client, &served.location);
    let file = open(&session, "/shared");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (file, session) = (&file, &session);
            scope.spawn(move || {
                let own = open(session, &format!("/own{thread}"));
                for round in 0..ROUNDS {
                    let fill = u8::try_from((thread * 31 + round) % 251).unwrap();
                    there_and_back(file, round * THREADS + thread, fill);
                    there_and_back(&own, round, fill);
                }
            });
        }
    });
    // SAFETY: nothing of the client leaves the future.
    let committed =
        unsafe { client.run(async |entered: &Entered<'_>| file.get(entered).commit_async().await) };
    committed.unwrap().unwrap();
    drop(file);
    drop(session);
    let bytes = std::fs::metadata(served.path().join("export/shared")).unwrap().len();
    assert_eq!(bytes, THREADS * ROUNDS * BLOCK);
}

#[test]
fn threads_share_a_client_over_shared_memory() {
    many_threads("shm");
}

#[test]
fn threads_share_a_client_over_tcp() {
    many_threads("tcp");
}

/// One thread waits for a lock while others work, and the holder releases it.
#[test]
fn who_waits_keeps_nobody_out() {
    let served = Served::start("shm");
    let client = SharedClient::new(ClientConfig::default()).unwrap();
    let session = connect(&client, &served.location);
    let (holder, waiter) = (open(&session, "/locked"), open(&session, "/locked"));
    let other = open(&session, "/other");
    let take = |file: &Held<File>| {
        // SAFETY: nothing of the client leaves the future.
        let taken = unsafe {
            client.run(async |entered: &Entered<'_>| {
                let file = file.get(entered);
                file.try_lock_async(LockKind::Exclusive, 0, 1, LockOptions::default()).await
            })
        };
        taken.unwrap().unwrap().is_none()
    };
    assert!(take(&holder));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut tries = 0u64;
            while !take(&waiter) {
                tries += 1;
            }
            tries
        });
        for round in 0..ROUNDS {
            there_and_back(&other, round, 7);
        }
        // SAFETY: nothing of the client leaves the future.
        let unlocked = unsafe {
            client.run(async |entered: &Entered<'_>| holder.get(entered).unlock_async(0, 1).await)
        };
        unlocked.unwrap().unwrap();
        waiting.join().unwrap();
    });
}

#[test]
fn a_condition_is_looked_at_when_something_comes_and_ends_with_its_time() {
    let served = Served::start("shm");
    let client = SharedClient::new(ClientConfig::default()).unwrap();
    let session = connect(&client, &served.location);
    let file = open(&session, "/file");
    // SAFETY: only numbers leave; the buffer is dropped with the transfer.
    let group = unsafe {
        inside(&client, |entered| {
            let group = entered.group();
            let buffer = entered.allocate(BLOCK as usize).unwrap();
            let slice = buffer.slice(0, BLOCK as usize).unwrap();
            let stability = dafs_client::Stability::Unstable;
            let (session, file) = (session.get(entered), file.get(entered));
            session.submit_write(file, 0, slice, stability, group, 5).unwrap();
            group
        })
    }
    .unwrap();
    // SAFETY: completions are `Send`.
    let completion = unsafe { client.wait_until(None, |entered| entered.next(group)) };
    assert_eq!(completion.unwrap().unwrap().context, 5);
    let never = Some(Duration::from_millis(1));
    // SAFETY: nothing of the client leaves the closure.
    let nothing = unsafe { client.wait_until(never, |entered| entered.next(group)) };
    assert!(nothing.unwrap().is_none());
}

#[test]
fn a_child_is_told_and_drops_nothing() {
    let served = Served::start("shm");
    let client = SharedClient::new(ClientConfig::default()).unwrap();
    let session = connect(&client, &served.location);
    let file = open(&session, "/file");
    // SAFETY: the child only makes the calls under test and then exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: nothing of the client leaves this line.
        let is_told = unsafe { client.enter() }.is_err() && client.hand_over().is_err();
        let is_told = is_told && client.is_forked();
        drop(file);
        drop(session);
        drop(client);
        let anew = Client::new(ClientConfig::default());
        let connected = anew.and_then(|c| c.connect(&served.location, &SessionOptions::default()));
        // SAFETY: ends the child without running exit handlers of the parent's tests.
        unsafe { libc::_exit(if is_told && connected.is_ok() { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid during the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child");
    there_and_back(&file, 0, 3);
}

#[test]
fn a_client_is_handed_over_by_whoever_has_connected_it() {
    let served = Served::start("shm");
    let client = SharedClient::new(ClientConfig::default()).unwrap();
    let (connecting, location) = (client.clone(), served.location.clone());
    let session = std::thread::spawn(move || connect(&connecting, &location)).join().unwrap();
    client.hand_over().unwrap();
    let file = open(&session, "/x");
    there_and_back(&file, 0, 7);
    // Another thread still gets access.
    std::thread::scope(|scope| {
        scope.spawn(|| there_and_back(&file, 1, 8));
        there_and_back(&file, 2, 9);
    });
    client.hand_over().unwrap();
    there_and_back(&file, 3, 10);
}
