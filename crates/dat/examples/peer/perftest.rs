//! Both sides of `ib_send_bw`, `ib_write_bw` and `ib_read_bw` of perftest with `-R`.
//!
//! There are two connections to one port. Over the first, the sides alternate, the client first:
//! version, page size, line size, MTU. Then each repeatedly sends where its memory is. This is how
//! they wait for each other: before and after the second connection is made, and before and after
//! the measurement, which uses the second connection. The side that writes or reads finally sends
//! its result. The side that receives Sends writes their number into the sender's memory, so that
//! no more are in flight than there are receives.
//!
//! Invariant: a message of the first connection is a reply to one of the peer's, or awaits a reply.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dafs_dat::{
    Address, BreakReason, Completion, CompletionStatus, EndpointId, Event, Gather, Interface,
    InterfaceConfig, Operation, Region, RemoteSegment, Rights, SendOptions, Signal, Stag,
};
use dafs_memory::{Memory, Pages};

use super::link::{Buffer, DOMAIN};
use super::{Failure, Options};

/// The measured operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    Read,
}

struct Perftest<'o> {
    options: &'o Options,
    kind: Kind,
    interface: Interface,
    /// The first connection, and the second.
    control: Option<EndpointId>,
    data: Option<EndpointId>,
    established: u32,
    inbox: Buffer,
    /// The memory that is sent, written or read, on this side and by the peer.
    main: Buffer,
    /// The number of Sends that the peer has received.
    credit: Buffer,
    /// The number of Sends that this side has received.
    received: Buffer,
    received_count: u32,
    /// The messages from the peer.
    said: VecDeque<Vec<u8>>,
    done_count: u32,
    ended: Vec<(EndpointId, BreakReason)>,
}

/// Runs the server for one client.
pub(crate) fn serve(options: &Options) -> Result<(), Failure> {
    let mut this = Perftest::new(options)?;
    if this.kind == Kind::Read {
        this.fill();
    }
    this.interface.listen(&Address::Tcp(options.address))?;
    println!("listening");
    let (mut theirs, mut reports) = (None, Vec::new());
    while this.control.is_none_or(|control| !this.has_ended(control)) {
        this.step(HANG)?;
        while let Some(message) = this.said.pop_front() {
            match message.len() {
                PLACE_BYTES => {
                    theirs = Some(place(&message)?);
                    this.say(&this.own_place())?;
                }
                // The peer's result and its options. This side has the same options.
                8 => {
                    reports.push(u64::from_be_bytes(message[..].try_into()?));
                    this.say(&message)?;
                }
                _ => this.say(&message)?,
            }
        }
        if let Some(theirs) = theirs {
            this.give_credit(theirs)?;
        }
    }
    if this.kind == Kind::Send {
        this.expect_received()?;
    } else if reports.get(..2) != Some(&[options.size.into(), options.count.into()]) {
        return Err(format!("it reports {reports:?}").into());
    }
    this.expect_bytes()?;
    println!("{} iterations served", options.count);
    Ok(())
}

/// Runs the client.
pub(crate) fn drive(options: &Options) -> Result<(), Failure> {
    let mut this = Perftest::new(options)?;
    if this.kind != Kind::Read {
        this.fill();
    }
    let control = this.connect()?;
    this.control = Some(control);
    this.post_slots(control)?;
    this.exchange(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0")?;
    this.exchange(&4096u32.to_be_bytes())?;
    this.exchange(&64u32.to_be_bytes())?;
    this.exchange(b"3\0")?;
    this.meet()?;
    let data = this.connect()?;
    this.data = Some(data);
    this.meet()?;
    let theirs = this.meet()?;
    this.meet()?;
    this.meet()?;
    if this.kind == Kind::Send {
        this.meet()?;
    }
    let begun = Instant::now();
    this.run(data, theirs)?;
    let seconds = begun.elapsed().as_secs_f64();
    if this.kind != Kind::Send {
        this.meet()?;
        let rate = f64::from(options.count) / seconds;
        let average = rate * f64::from(options.size) / f64::from(1 << 20);
        this.exchange(&u64::from(options.size).to_be_bytes())?;
        this.exchange(&u64::from(options.count).to_be_bytes())?;
        for figure in [average, average, rate / 1e6] {
            this.exchange(&figure.to_be_bytes())?;
        }
    }
    this.meet()?;
    this.expect_bytes()?;
    println!("{} iterations", options.count);
    for endpoint in [data, control] {
        this.interface.disconnect(endpoint);
    }
    Ok(())
}

impl<'o> Perftest<'o> {
    fn new(options: &'o Options) -> Result<Self, Failure> {
        let kind = match options.scene.as_str() {
            "send" => Kind::Send,
            "write" => Kind::Write,
            "read" => Kind::Read,
            other => return Err(format!("unknown scene {other}").into()),
        };
        let mut interface = Interface::new(InterfaceConfig::default())?;
        let mut buffer = |length: usize, rights| -> Result<Buffer, Failure> {
            let memory = Memory::anonymous(length, Pages::Small)?;
            let region = interface.register(&memory, DOMAIN, rights);
            Ok(Buffer { memory, region: region.ok_or("no room for a region")? })
        };
        let main_bytes = (options.size as usize).max(CYCLE_BYTES);
        let main = buffer(main_bytes, Rights::REMOTE)?;
        Ok(Self {
            options,
            kind,
            inbox: buffer(SLOTS * PLACE_BYTES, Rights::LOCAL)?,
            credit: buffer(4, Rights::REMOTE)?,
            received: buffer(4, Rights::LOCAL)?,
            main,
            interface,
            control: None,
            data: None,
            established: 0,
            received_count: 0,
            said: VecDeque::new(),
            done_count: 0,
            ended: Vec::new(),
        })
    }

    /// Fills the memory for the peer with nonzero bytes.
    fn fill(&self) {
        self.main.memory.write(0, &vec![0x5a; self.options.size as usize]);
    }

    /// Fails if this side's memory is still all zeros. The peer's bytes may have any values.
    fn expect_bytes(&self) -> Result<(), Failure> {
        let bytes = self.main.memory.to_vec(0, self.options.size as usize);
        let is_empty = bytes.iter().all(|byte| *byte == 0);
        if is_empty { Err("nothing came".into()) } else { Ok(()) }
    }

    // ---- the first connection ---------------------------------------------------

    /// Sends a message and returns the reply.
    fn exchange(&mut self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        self.say(message)?;
        loop {
            if let Some(answer) = self.said.pop_front() {
                return Ok(answer);
            }
            self.step(HANG)?;
            // The peer may close the second connection before its last message arrives here.
            self.must_stand(&[self.control])?;
        }
    }

    /// Waits for the other side and returns where its memory is.
    fn meet(&mut self) -> Result<RemoteSegment, Failure> {
        place(&self.exchange(&self.own_place())?)
    }

    fn say(&mut self, message: &[u8]) -> Result<(), Failure> {
        let control = self.control.ok_or("nobody to talk to")?;
        let gather = [Gather::Bytes(message)];
        let options = SendOptions { signal: Signal::OnError, ..SendOptions::default() };
        self.interface.post_send(control, 0, &gather, options)?;
        self.interface.flush();
        Ok(())
    }

    /// Returns where this side's memory is: `struct pingpong_dest` in the form of a 64-bit machine.
    fn own_place(&self) -> [u8; PLACE_BYTES] {
        let region: &Region = match self.kind {
            Kind::Send => &self.credit.region,
            Kind::Write | Kind::Read => &self.main.region,
        };
        let mut bytes = [0; PLACE_BYTES];
        bytes[4..8].copy_from_slice(&1u32.to_be_bytes());
        bytes[16..20].copy_from_slice(&region.stag.0.to_be_bytes());
        bytes[24..32].copy_from_slice(&region.address.to_be_bytes());
        bytes
    }

    // ---- the second -------------------------------------------------------------

    /// Runs the measured operations.
    fn run(&mut self, data: EndpointId, theirs: RemoteSegment) -> Result<(), Failure> {
        self.done_count = 0;
        let local = self.main.region.local(0, self.options.size);
        let remote = RemoteSegment { length: self.options.size, ..theirs };
        let (mut posted, mut stood) = (0, Instant::now());
        while self.done_count < self.options.count {
            let is_due = posted < self.options.count
                && posted - self.done_count < DEPTH
                && (self.kind != Kind::Send || posted - self.credited() < WINDOW);
            if is_due {
                let interface = &mut self.interface;
                match self.kind {
                    Kind::Send => {
                        let gather = [Gather::Segment(local)];
                        let options =
                            SendOptions { signal: Signal::Always, ..SendOptions::default() };
                        interface.post_send(data, 0, &gather, options)?;
                    }
                    Kind::Write => {
                        let signal = Signal::Always;
                        interface.post_rdma_write(data, 0, &[local], remote, signal)?;
                    }
                    Kind::Read => interface.post_rdma_read(data, 0, &[local], remote)?,
                }
                (posted, stood) = (posted + 1, Instant::now());
                continue;
            }
            // The peer writes credit without a message.
            self.interface.flush();
            if self.step(CREDIT_LOOK).is_err() && stood.elapsed() > HANG {
                return Err(format!("{posted} posted, {} done", self.done_count).into());
            }
            self.must_stand(&[self.control, self.data])?;
        }
        Ok(())
    }

    /// Tells a sender from time to time how many Sends have arrived.
    fn give_credit(&mut self, theirs: RemoteSegment) -> Result<(), Failure> {
        let Some(data) = self.data else { return Ok(()) };
        let told = u32::from_ne_bytes(self.received.memory.to_vec(0, 4)[..].try_into()?);
        if self.kind != Kind::Send || self.received_count - told < CREDIT_STEP {
            return Ok(());
        }
        self.received.memory.write(0, &self.received_count.to_ne_bytes());
        let (local, remote) =
            (self.received.region.local(0, 4), RemoteSegment { length: 4, ..theirs });
        self.interface.post_rdma_write(data, 0, &[local], remote, Signal::Always)?;
        self.interface.flush();
        Ok(())
    }

    fn credited(&self) -> u32 {
        let bytes = self.credit.memory.to_vec(0, 4);
        bytes.try_into().map_or(0, u32::from_ne_bytes)
    }

    fn expect_received(&mut self) -> Result<(), Failure> {
        while self.received_count < self.options.count
            && self.data.is_some_and(|data| !self.has_ended(data))
        {
            self.step(HANG)?;
        }
        if self.received_count != self.options.count {
            return Err(format!("{} messages received", self.received_count).into());
        }
        Ok(())
    }

    // ---- both -------------------------------------------------------------------

    /// Connects. Tries again if the server does not listen yet.
    fn connect(&mut self) -> Result<EndpointId, Failure> {
        let begun = Instant::now();
        loop {
            let address = Address::Tcp(self.options.address);
            let config = &self.options.endpoint;
            let endpoint = self.interface.connect(&address, DOMAIN, config, b"")?;
            let before = self.established;
            while self.established == before && !self.has_ended(endpoint) {
                self.step(HANG)?;
            }
            if self.established > before {
                return Ok(endpoint);
            }
            self.interface.release(endpoint);
            if begun.elapsed() > HANG {
                return Err("nobody listens".into());
            }
        }
    }

    fn post_slots(&mut self, control: EndpointId) -> Result<(), Failure> {
        (0..SLOTS as u64).try_for_each(|slot| self.post_slot(control, slot))
    }

    fn post_slot(&mut self, control: EndpointId, slot: u64) -> Result<(), Failure> {
        let bytes = PLACE_BYTES as u32;
        let segment = self.inbox.region.local(slot * u64::from(bytes), bytes);
        Ok(self.interface.post_receive(control, slot, &[segment])?)
    }

    /// Posts a receive for a Send. All receives use the same memory.
    fn post_main(&mut self, data: EndpointId) -> Result<(), Failure> {
        let segment = self.main.region.local(0, self.options.size);
        Ok(self.interface.post_receive(data, 0, &[segment])?)
    }

    fn has_ended(&self, endpoint: EndpointId) -> bool {
        self.ended.iter().any(|(ended, _)| *ended == endpoint)
    }

    /// Fails if one of these connections has ended.
    fn must_stand(&self, these: &[Option<EndpointId>]) -> Result<(), Failure> {
        let is_meant = |endpoint| these.contains(&Some(endpoint));
        match self.ended.iter().find(|(endpoint, _)| is_meant(*endpoint)) {
            Some((_, reason)) => Err(reason.clone().into()),
            None => Ok(()),
        }
    }

    /// Processes one event. Fails if there is none within `patience`.
    fn step(&mut self, patience: Duration) -> Result<(), Failure> {
        if self.interface.event_count() == 0 {
            self.interface.wait(1, Some(patience));
        }
        match self.interface.next_event().ok_or("nothing happens any more")? {
            Event::ConnectionRequest { pending, .. } => {
                let config = &self.options.endpoint;
                let endpoint = self.interface.accept(pending, DOMAIN, config, b"");
                if self.control.is_none() {
                    self.control = Some(endpoint);
                    return self.post_slots(endpoint);
                }
                self.data = Some(endpoint);
                let count = if self.kind == Kind::Send { RECEIVES } else { 0 };
                (0..count).try_for_each(|_| self.post_main(endpoint))
            }
            Event::Established { .. } => {
                self.established += 1;
                Ok(())
            }
            Event::Completion(completion) => self.on_completion(&completion),
            Event::Broken { endpoint, reason } => {
                self.ended.push((endpoint, reason));
                Ok(())
            }
            other => Err(format!("not expected: {other:?}").into()),
        }
    }

    fn on_completion(&mut self, completion: &Completion) -> Result<(), Failure> {
        let Completion { endpoint, operation, status, cookie, length, .. } = *completion;
        if status != CompletionStatus::Success {
            // The event of the broken connection tells the reason.
            return Ok(());
        }
        if operation != Operation::Receive {
            self.done_count += 1;
            return Ok(());
        }
        if self.data == Some(endpoint) {
            self.received_count += 1;
            return self.post_main(endpoint);
        }
        let at = cookie as usize * PLACE_BYTES;
        self.said.push_back(self.inbox.memory.to_vec(at, length as usize));
        self.post_slot(endpoint, cookie)
    }
}

/// Parses where a peer's memory is.
fn place(bytes: &[u8]) -> Result<RemoteSegment, Failure> {
    if bytes.len() != PLACE_BYTES {
        return Err(format!("{} bytes instead of a place", bytes.len()).into());
    }
    let stag = Stag(u32::from_be_bytes(bytes[16..20].try_into()?));
    let address = u64::from_be_bytes(bytes[24..32].try_into()?);
    Ok(RemoteSegment { stag, address, length: 0 })
}

/// The number of bytes of `struct pingpong_dest`.
const PLACE_BYTES: usize = 56;
const SLOTS: usize = 8;
/// The range of memory over which small transfers cycle.
const CYCLE_BYTES: usize = 4096;
/// The number of receives that a sender assumes: perftest's `--rx-depth`.
const RECEIVES: u32 = 512;
/// The number of Sends between two updates of the credit.
const CREDIT_STEP: u32 = 64;
/// The greatest number of Sends ahead of the peer's last update, which comes every 170.
const WINDOW: u32 = 400;
/// The greatest number of work requests in flight.
const DEPTH: u32 = 64;
const CREDIT_LOOK: Duration = Duration::from_millis(10);
/// A limit that only detects hanging; emulated machines are slow.
const HANG: Duration = Duration::from_secs(120);
