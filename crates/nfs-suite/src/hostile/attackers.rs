//! The attackers: each breaks one rule again and again until the load ends.
//!
//! Invariant: an attacker ends soon after the load is over, whatever the server does.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with};

use super::Shared;
use super::messages::{Generator, Random};
use crate::fault::Fault;
use crate::nfs3;
use crate::nfs4::session::{Session, Wish};
use crate::nfs4::{self, StateId, ops};
use crate::rpc::{Auth, Call, Connection, LAST, record_of};
use crate::xdr::Put;

/// The name of an attacker, and its work.
type Attacker = (&'static str, fn(&Shared));

/// All attackers except those that send bad messages.
pub(super) const ALL: &[Attacker] = &[
    ("half-records", half_records),
    ("endless-fragments", endless_fragments),
    ("slow-readers", slow_readers),
    ("long-compounds", long_compounds),
    ("many-clients", many_clients),
    ("slot-games", slot_games),
    ("short-connections", short_connections),
    ("bad-connections", bad_connections),
];

/// The longest time that an attacker waits for the server.
const WAIT: Duration = Duration::from_millis(200);
/// The time that an attacker waits before it connects again, so that there are free ports.
const PAUSE: Duration = Duration::from_millis(100);
/// The number of connections that an attacker holds at the same time.
const HELD: usize = 64;
/// The number of calls that are sent at a time.
const BATCH: u64 = 32;
/// The number of bad messages that are sent on one connection, if the server does not close it.
const PER_CONNECTION: u64 = 256;
/// The number of operations in a long compound.
const OPERATIONS: usize = 10_000;

fn connect(server: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, WAIT).ok()?;
    stream.set_read_timeout(Some(WAIT)).ok()?;
    stream.set_write_timeout(Some(WAIT)).ok()?;
    Some(stream)
}

/// Sends so many bad messages, each with a valid call behind it, and waits until the server has
/// answered that call or closed the connection. So each message has been received when it counts.
///
/// Most bad messages end their connection, and the system uses no port again for a minute. So that
/// there are ports for a million connections, each sender has an address of its own, if the server
/// has one of the loopback network.
pub(super) fn send_bad_messages(
    shared: &Shared,
    mut generator: Generator,
    (sender, count): (u8, u64),
) {
    let null = Call::new(nfs3::PROGRAM, 3, 0, &Auth::None, Vec::new());
    let mut sent = 0;
    while sent < count && !shared.is_over() {
        let Ok(mut connection) = connection_of(sender, shared) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        for _ in 0..PER_CONNECTION {
            let xid = connection.xid();
            let both = [record_of(&[&generator.message()]), record_of(&[&null.encode(xid)])];
            let result = connection.send_raw(&both.concat()).and_then(|()| connection.reply(xid));
            sent += 1;
            shared.sent.fetch_add(1, Ordering::Relaxed);
            if result.is_err() || sent == count || shared.is_over() {
                break;
            }
        }
    }
}

/// Holds connections on which half of a record has arrived.
fn half_records(shared: &Shared) {
    let record = record_of(&[&[7; 4096]]);
    let mut random = Random::new(1);
    let mut held = Vec::new();
    while !shared.is_over() {
        let Some(mut stream) = connect(shared.server) else { continue };
        let length = 1 + random.below(record.len() as u64 - 1) as usize;
        // A record of a megabyte is announced, and some bytes of it follow.
        let mark = (LAST | 1 << 20).to_be_bytes();
        let _ = match random.below(2) {
            0 => stream.write_all(&record[..length]),
            _ => stream.write_all(&[&mark[..], &record[4..length.max(4)]].concat()),
        };
        held.push(stream);
        if held.len() > HELD {
            held.remove(0);
        }
        shared.acted();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends records whose last fragment never comes.
fn endless_fragments(shared: &Shared) {
    let small = [&4_u32.to_be_bytes()[..], &[0; 4]].concat().repeat(256);
    let empty = [0_u8; 4].repeat(256);
    let large = [&(64_u32 << 10).to_be_bytes()[..], &vec![7; 64 << 10]].concat();
    for kind in [&small, &empty, &large].into_iter().cycle() {
        let Some(mut stream) = connect(shared.server) else { continue };
        for _ in 0..4096 {
            if shared.is_over() {
                return;
            }
            if stream.write_all(kind).is_err() {
                break;
            }
            shared.acted();
        }
    }
}

/// Asks for much data on many connections and reads none of it.
fn slow_readers(shared: &Shared) {
    let arguments = Put::new().opaque(&shared.file).u64(0).u32(1 << 20).0;
    let call = Call::new(nfs3::PROGRAM, 3, 6, &Auth::user(0), arguments);
    let calls: Vec<u8> =
        (0..BATCH as u32).flat_map(|xid| record_of(&[&call.encode(xid)])).collect();
    let mut held: Vec<TcpStream> = Vec::new();
    while !shared.is_over() {
        let Some(mut stream) = connect(shared.server) else { continue };
        let _ = stream.write_all(&calls);
        held.push(stream);
        if held.len() > HELD {
            held.remove(0);
        }
        // The last ones read a little, so that the server goes on to write.
        let mut buffer = [0; 512];
        for stream in held.iter_mut().rev().take(4) {
            let _ = stream.set_nonblocking(true);
            let _ = stream.read(&mut buffer);
        }
        shared.acted();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends compounds of 10,000 operations, with and without a session.
fn long_compounds(shared: &Shared) {
    let mut session = session(shared, b"long compounds");
    let kinds = [ops::putrootfh(), ops::getattr(&[1, 3, 4]), ops::bare(9999), ops::getfh()];
    for op in kinds.iter().cycle() {
        if shared.is_over() {
            return;
        }
        let mut all = vec![op.clone(); OPERATIONS];
        if let Some(session) = &session {
            all.insert(0, session.sequence(0, true));
            all.insert(1, ops::putrootfh());
        }
        let Ok(mut connection) = connection(shared) else { continue };
        let call = nfs4::call_of(&Auth::user(0), &[b't'; 1024], 1, &all);
        let is_new = matches!(connection.call(&call).as_deref(), Ok([0, 0, 0, 0, ..]));
        shared.acted();
        match session.as_mut() {
            Some(session) if is_new => session.next[0] += 1,
            Some(_) => {}
            None => session = self::session(shared, b"long compounds"),
        }
    }
}

/// Makes clients of version 4.1 that never come back.
fn many_clients(shared: &Shared) {
    let mut random = Random::new(2);
    while !shared.is_over() {
        let Ok(mut connection) = connection(shared) else { continue };
        for _ in 0..BATCH {
            let owner = random.number().to_be_bytes().repeat(100);
            let wish = Wish::new(&owner, Auth::user(random.below(1000) as u32), 1);
            let Ok(client) = nfs4::session::exchange(&mut connection, &wish) else { break };
            if random.below(4) == 0 {
                let number = client.sequence;
                let _ = nfs4::session::create(&mut connection, &wish, client.id, number);
            }
            shared.acted();
        }
    }
}

/// Uses wrong numbers, wrong slots, and repeats with other operations.
fn slot_games(shared: &Shared) {
    let mut random = Random::new(3);
    while !shared.is_over() {
        let Some(mut session) = session(shared, b"slot games") else { continue };
        for _ in 0..1000 {
            if shared.is_over() {
                break;
            }
            let (number, slot) = (random.below(6) as u32, random.odd() % 20);
            let sequence =
                ops::sequence(session.created.id, number, slot, random.odd(), number % 2 == 0);
            let read = ops::read(StateId::ANONYMOUS, 0, 1 << 20);
            let all = [sequence, ops::putrootfh(), ops::getattr(&[random.odd() % 100]), read];
            let count = 1 + random.below(4) as usize;
            let call = nfs4::call_of(&Auth::user(0), b"", 1, &all[..count]);
            if session.connection.call(&call).is_err() {
                break;
            }
            shared.acted();
        }
    }
}

/// Connects and disconnects.
fn short_connections(shared: &Shared) {
    while !shared.is_over() {
        for _ in 0..BATCH {
            drop(connect(shared.server));
            shared.acted();
        }
        std::thread::sleep(PAUSE);
    }
}

/// Connects, sends many bad messages, and disconnects without a look at what comes back.
fn bad_connections(shared: &Shared) {
    let mut generator = Generator::new(4, &shared.file, &shared.dir);
    let batch: Vec<u8> = (0..BATCH).flat_map(|_| record_of(&[&generator.message()])).collect();
    while !shared.is_over() {
        let Some(mut stream) = connect(shared.server) else { continue };
        let _ = stream.write_all(&batch);
        shared.acted();
        std::thread::sleep(PAUSE);
    }
}

fn connection(shared: &Shared) -> Result<Connection, Fault> {
    let mut connection = Connection::open(shared.server)?;
    connection.set_patience(1)?;
    Ok(connection)
}

/// Connects a sender, from an address of its own if the server is at 127.0.0.1.
fn connection_of(sender: u8, shared: &Shared) -> Result<Connection, Fault> {
    let mut connection = match shared.server {
        SocketAddr::V4(server) if *server.ip() == Ipv4Addr::LOCALHOST => {
            let own = Ipv4Addr::new(127, 0, 1, sender.wrapping_add(1));
            Connection::over(connect_from(own, server)?)?
        }
        server => Connection::open(server)?,
    };
    connection.set_patience(1)?;
    Ok(connection)
}

fn connect_from(own: Ipv4Addr, server: SocketAddrV4) -> std::io::Result<TcpStream> {
    let fd = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        Some(ipproto::TCP),
    )?;
    bind(&fd, &SocketAddrV4::new(own, 0))?;
    rustix::net::connect(&fd, &server)?;
    Ok(TcpStream::from(fd))
}

fn session(shared: &Shared, owner: &[u8]) -> Option<Session> {
    let mut session = Session::start(shared.server, &Wish::new(owner, Auth::user(0), 1)).ok()?;
    session.connection.set_patience(1).ok()?;
    Some(session)
}
