//! One connection with blocking operations.
//!
//! Invariant: a receive is posted for each slot without a message. So a peer that sends one message
//! and waits for the reply always finds a receive.

use std::collections::VecDeque;
use std::time::Duration;

use dafs_dat::{
    Address, BreakReason, Completion, CompletionStatus, Domain, EndpointId, Event, Gather,
    Interface, InterfaceConfig, LocalSegment, Operation, PostError, Region, RemoteSegment, Rights,
    SendOptions, Signal, Stag,
};
use dafs_memory::{Memory, Pages};

use super::{Failure, Options};

/// One connection and its interface.
pub(crate) struct Link {
    pub interface: Interface,
    pub endpoint: EndpointId,
    inbox: Memory,
    inbox_region: Region,
    /// The arrived messages: slot and completion.
    arrived: VecDeque<Completion>,
    /// The completions of other work.
    done: VecDeque<Completion>,
    pub broken: Option<BreakReason>,
}

/// A received message.
pub(crate) struct Message {
    pub bytes: Vec<u8>,
    /// The region of this side that the message has invalidated.
    pub invalidated: Option<Stag>,
}

/// Memory and its registration.
pub(crate) struct Buffer {
    pub memory: Memory,
    pub region: Region,
}

impl Link {
    /// Connects to the address in the options.
    pub(crate) fn connect(options: &Options) -> Result<Self, Failure> {
        let mut interface = Interface::new(InterfaceConfig::default())?;
        let address = Address::Tcp(options.address);
        let endpoint = interface.connect(&address, DOMAIN, &options.endpoint, b"")?;
        Self::begin(interface, endpoint)
    }

    /// Listens and accepts the first connection.
    pub(crate) fn accept(options: &Options) -> Result<Self, Failure> {
        let mut interface = Interface::new(InterfaceConfig::default())?;
        let listener = interface.listen(&Address::Tcp(options.address))?;
        println!("listening");
        let pending = loop {
            match next_event(&mut interface)? {
                Event::ConnectionRequest { pending, .. } => break pending,
                // A connection that ended before its request was complete.
                Event::Broken { endpoint, .. } => interface.release(endpoint),
                other => return Err(format!("not expected: {other:?}").into()),
            }
        };
        interface.unlisten(listener);
        let endpoint = interface.accept(pending, DOMAIN, &options.endpoint, b"");
        Self::begin(interface, endpoint)
    }

    fn begin(mut interface: Interface, endpoint: EndpointId) -> Result<Self, Failure> {
        let inbox = Memory::anonymous(SLOTS * SLOT_BYTES as usize, Pages::Small)?;
        let inbox_region =
            interface.register(&inbox, DOMAIN, Rights::LOCAL).ok_or("no room for a region")?;
        let mut link = Self {
            interface,
            endpoint,
            inbox,
            inbox_region,
            arrived: VecDeque::new(),
            done: VecDeque::new(),
            broken: None,
        };
        for slot in 0..SLOTS as u64 {
            link.post_slot(slot)?;
        }
        match next_event(&mut link.interface)? {
            Event::Established { .. } => Ok(link),
            Event::Broken { reason, .. } => Err(reason.into()),
            other => Err(format!("not established: {other:?}").into()),
        }
    }

    /// Registers new memory.
    pub(crate) fn buffer(&mut self, length: usize, rights: Rights) -> Result<Buffer, Failure> {
        let memory = Memory::anonymous(length, Pages::Small)?;
        let region =
            self.interface.register(&memory, DOMAIN, rights).ok_or("no room for a region")?;
        Ok(Buffer { memory, region })
    }

    pub(crate) fn send(&mut self, bytes: &[u8], invalidate: Option<Stag>) -> Result<(), Failure> {
        let options = SendOptions { signal: Signal::Always, invalidate };
        let gather = [Gather::Bytes(bytes)];
        let posted = self.interface.post_send(self.endpoint, 0, &gather, options);
        self.finish(posted, Operation::Send, 1)
    }

    pub(crate) fn write(&mut self, from: LocalSegment, to: RemoteSegment) -> Result<(), Failure> {
        let signal = Signal::Always;
        let posted = self.interface.post_rdma_write(self.endpoint, 0, &[from], to, signal);
        self.finish(posted, Operation::RdmaWrite, 1)
    }

    /// Executes reads. All of them are posted before the first one is awaited.
    pub(crate) fn read(&mut self, reads: &[(LocalSegment, RemoteSegment)]) -> Result<(), Failure> {
        for (to, from) in reads {
            self.interface.post_rdma_read(self.endpoint, 0, &[*to], *from)?;
        }
        self.finish(Ok(()), Operation::RdmaRead, reads.len())
    }

    /// Returns the next message and frees its slot.
    pub(crate) fn receive(&mut self) -> Result<Message, Failure> {
        while self.arrived.is_empty() {
            self.step()?;
        }
        let Some(completion) = self.arrived.pop_front() else { return Err("no message".into()) };
        let at = completion.cookie as usize * SLOT_BYTES as usize;
        let bytes = self.inbox.to_vec(at, completion.length as usize);
        self.post_slot(completion.cookie)?;
        Ok(Message { bytes, invalidated: completion.invalidated })
    }

    /// Waits until the other side ends the connection. Returns the reason.
    pub(crate) fn end(&mut self) -> BreakReason {
        loop {
            if let Some(reason) = self.broken.clone() {
                return reason;
            }
            if let Err(failure) = self.step()
                && self.broken.is_none()
            {
                return BreakReason::System(failure.to_string().into());
            }
        }
    }

    pub(crate) fn disconnect(mut self) {
        self.interface.disconnect(self.endpoint);
    }

    fn post_slot(&mut self, slot: u64) -> Result<(), Failure> {
        let segment = self.inbox_region.local(slot * u64::from(SLOT_BYTES), SLOT_BYTES);
        self.interface.post_receive(self.endpoint, slot, &[segment])?;
        Ok(())
    }

    /// Waits for `count` completions of posted work.
    fn finish(
        &mut self,
        posted: Result<(), PostError>,
        operation: Operation,
        count: usize,
    ) -> Result<(), Failure> {
        posted?;
        self.interface.flush();
        for _ in 0..count {
            while self.done.is_empty() {
                self.step()?;
            }
            let completion = self.done.pop_front();
            if completion.is_none_or(|done| done.operation != operation) {
                return Err(format!("{operation:?} awaited, and not {completion:?}").into());
            }
        }
        Ok(())
    }

    /// Processes one event.
    fn step(&mut self) -> Result<(), Failure> {
        match next_event(&mut self.interface)? {
            Event::Completion(completion) => {
                let is_done = completion.status == CompletionStatus::Success;
                match completion.operation {
                    // The event of the broken connection tells why work was flushed.
                    _ if !is_done => {}
                    Operation::Receive => self.arrived.push_back(completion),
                    _ => self.done.push_back(completion),
                }
                Ok(())
            }
            Event::Broken { reason, .. } => {
                self.broken = Some(reason.clone());
                Err(reason.into())
            }
            other => Err(format!("not expected: {other:?}").into()),
        }
    }
}

fn next_event(interface: &mut Interface) -> Result<Event, Failure> {
    loop {
        if let Some(event) = interface.next_event() {
            return Ok(event);
        }
        if interface.wait(1, Some(HANG)) == 0 {
            return Err("nothing happens any more".into());
        }
    }
}

pub(crate) const DOMAIN: Domain = Domain(1);
/// The greatest length of a message in bytes.
pub(crate) const SLOT_BYTES: u32 = 64 << 10;
const SLOTS: usize = 16;
/// A limit that only detects hanging; emulated machines are slow.
const HANG: Duration = Duration::from_secs(120);
