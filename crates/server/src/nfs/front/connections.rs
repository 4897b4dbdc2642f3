//! The connections of NFS clients and their limits: streams and datagrams of records, and RDMA.
//!
//! Invariant: a connection has one identifier, whatever carries it. The limits of the number of
//! connections count all of them together.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use dafs_dat::records::{LinkId, Part, RecordEvent, Records, RecordsConfig};
use dafs_dat::{Polled, Spinner, TlsServer, WaitPolicy};
use dafs_memory::Memory;

use crate::config::ServerError;
use crate::nfs::calls::CALL_BYTES_MAX;
use crate::nfs::config::NfsConfig;
use crate::nfs::rdma::{OutgoingMessage, Rdma};

/// All connections of NFS clients.
pub(super) struct Connections {
    records: Records,
    /// `None` if NFS clients are not served over RDMA.
    rdma: Option<Rdma>,
    /// Spins for calls over RDMA.
    spinner: Spinner,
}

impl Connections {
    /// Returns the connections, without a listener. `wait` limits the spins for calls over RDMA.
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub(super) fn new(wait: WaitPolicy) -> io::Result<Self> {
        let records = Records::new(RecordsConfig {
            record_bytes_max: CALL_BYTES_MAX,
            connections_max: CONNECTIONS_MAX,
            connections_per_address_max: CONNECTIONS_PER_ADDRESS_MAX,
            patience: PATIENCE,
            handshake_patience: HANDSHAKE_PATIENCE,
            handshakes_per_address_max: HANDSHAKES_PER_ADDRESS_MAX,
        })?;
        Ok(Self { records, rdma: None, spinner: Spinner::new(wait) })
    }

    /// Listens at the configured addresses. `cache` is the memory with the data of replies.
    ///
    /// # Errors
    /// [`ServerError`] with the address that cannot be used.
    pub(super) fn listen(&mut self, config: &NfsConfig, cache: &Memory) -> Result<(), ServerError> {
        let system = |what| move |source| ServerError::System { what, source };
        for address in &config.listen {
            let bound = self.records.listen(*address);
            let bound = bound.map_err(system("listening for NFS clients"))?;
            if let Err(error) = self.records.receive_datagrams(bound) {
                tracing::warn!(address = %bound, %error, "NFS clients are not served by UDP");
            }
        }
        if !config.rdma.is_empty() {
            let rdma = Rdma::new(&config.rdma, cache)?;
            let watched = self.records.watch(rdma.as_fd());
            watched.map_err(system("watching the RDMA interface"))?;
            self.rdma = Some(rdma);
        }
        Ok(())
    }

    /// Returns the connections that carry records.
    pub(super) fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    /// Returns the addresses of the listeners for TCP.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.records.addresses()
    }

    /// Returns the addresses of the listeners for RDMA.
    pub(super) fn rdma_addresses(&self) -> &[dafs_dat::Address] {
        self.rdma.as_ref().map_or(&[], Rdma::addresses)
    }

    /// Makes [`Connections::wait`] return when this descriptor is readable.
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub(super) fn watch(&mut self, other: BorrowedFd<'_>) -> io::Result<()> {
        self.records.watch(other)
    }

    /// Sends replies, and receives what has arrived. Waits for this time if nothing has. Returns
    /// true if a watched descriptor may be readable.
    pub(super) fn wait(&mut self, timeout: Duration) -> bool {
        if !timeout.is_zero()
            && let Some(is_woken) = self.spin()
        {
            return is_woken;
        }
        let Self { records, rdma, spinner } = self;
        let is_armed = rdma.as_mut().is_none_or(Rdma::arm);
        let begin = records.now();
        let is_woken = records.wait(if is_armed { timeout } else { Duration::ZERO });
        if let Some(rdma) = rdma {
            rdma.poll(records);
        }
        if records.has_events() || rdma.as_ref().is_some_and(Rdma::has_events) {
            spinner.slept(records.now().saturating_sub(begin));
        }
        is_woken
    }

    /// Polls for a while, because the wakeup of a sleeping thread takes longer than most calls do.
    /// Returns `None` if nothing has arrived, and otherwise as [`Connections::wait`] does.
    fn spin(&mut self) -> Option<bool> {
        let Self { records, rdma, spinner } = self;
        records.flush();
        let is_over_rdma = rdma.as_ref().is_some_and(Rdma::is_in_use);
        if !is_over_rdma && records.connection_count() == 0 {
            return None;
        }
        let (mut is_woken, mut polls) = (false, 0_u32);
        let polled = spinner.spin(|| {
            if let Some(rdma) = rdma.as_mut().filter(|_| is_over_rdma) {
                rdma.poll(records);
                if rdma.has_events() {
                    return Polled::Awaited;
                }
                polls += 1;
                // A poll of the sockets is a system call, so it waits for some polls of RDMA.
                if !polls.is_multiple_of(POLLS_FOR_OTHERS) {
                    return Polled::Nothing;
                }
            }
            is_woken = records.wait(Duration::ZERO);
            match (records.has_events(), is_woken) {
                (true, _) => Polled::Awaited,
                (false, true) => Polled::Other,
                (false, false) => Polled::Nothing,
            }
        });
        if polled == Polled::Nothing {
            return None;
        }
        // What has woken this thread may be the first connection over RDMA.
        if let Some(rdma) = rdma.as_mut().filter(|_| !is_over_rdma) {
            rdma.poll(records);
        }
        Some(is_woken)
    }

    /// Returns the time of the clock of connections.
    pub(super) fn now(&self) -> Duration {
        self.records.now()
    }

    /// Closes the connections whose peers are too slow.
    pub(super) fn tick(&mut self) {
        self.records.tick();
        if let Some(rdma) = &mut self.rdma {
            rdma.tick(&mut self.records);
        }
    }

    /// Removes and returns the next event.
    pub(super) fn next_event(&mut self) -> Option<RecordEvent> {
        let Self { records, rdma, .. } = self;
        records.next_event().or_else(|| rdma.as_mut()?.next_event(records))
    }

    /// Returns the connections over RDMA if a connection is one of them.
    fn over_rdma(&mut self, link: LinkId) -> Option<(&mut Rdma, &mut Records)> {
        let Self { records, rdma, .. } = self;
        let rdma = rdma.as_mut().filter(|rdma| rdma.has(link))?;
        Some((rdma, records))
    }

    /// Returns true if a connection uses RDMA.
    pub(super) fn is_rdma(&self, link: LinkId) -> bool {
        self.rdma.as_ref().is_some_and(|rdma| rdma.has(link))
    }

    /// Reads whole calls from a connection from now on, because the rules let its client in; or
    /// only the beginnings. A connection over RDMA is accepted only for a client that is let in.
    pub(super) fn let_in(&mut self, link: LinkId, is_let_in: bool) {
        match self.over_rdma(link) {
            Some((rdma, records)) if is_let_in => rdma.admit(link, records),
            Some(_) => {}
            None => {
                let kept = if is_let_in { CALL_BYTES_MAX } else { STRANGER_BYTES_MAX };
                self.records.keep_of_records(link, kept);
            }
        }
    }

    /// Stops passing on the calls of a connection, or starts again.
    pub(super) fn set_paused(&mut self, link: LinkId, is_paused: bool) {
        match self.over_rdma(link) {
            Some((rdma, _)) => rdma.set_paused(link, is_paused),
            None => self.records.set_paused(link, is_paused),
        }
    }

    /// Sends a reply or a callback, of which some data may be in the cache.
    pub(super) fn send_over_rdma(&mut self, link: LinkId, message: OutgoingMessage<'_>) {
        if let Some((rdma, records)) = self.over_rdma(link) {
            rdma.send(link, message, records);
        }
    }

    /// Sends a reply that has no data apart from its bytes.
    pub(super) fn send_whole(&mut self, link: LinkId, reply: Vec<u8>) {
        match self.over_rdma(link) {
            Some((rdma, records)) => rdma.send_whole(link, reply, records),
            None => self.records.send(link, [Part::Bytes(&reply)], []),
        }
    }

    /// Returns true if TLS was started on a connection.
    pub(super) fn is_tls(&self, link: LinkId) -> bool {
        self.records.is_tls(link)
    }

    /// Sends a reply, and then starts TLS.
    pub(super) fn start_tls(&mut self, link: LinkId, server: &TlsServer, reply: &[u8]) {
        self.records.start_tls(link, server, reply);
    }

    /// Returns the number of bytes of a connection's replies that are not sent.
    pub(super) fn unsent(&self, link: LinkId) -> u64 {
        let of_rdma = self.rdma.as_ref().map_or(0, |rdma| rdma.unsent(link));
        self.records.unsent(link) + of_rdma
    }

    /// Returns the number of bytes of all replies that are not sent.
    pub(super) fn unsent_total(&self) -> u64 {
        self.records.unsent_total() + self.rdma.as_ref().map_or(0, Rdma::unsent_total)
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, link: LinkId, reason: &'static str) {
        match self.over_rdma(link) {
            Some((rdma, records)) => rdma.close((link, reason), records),
            None => self.records.close(link, reason),
        }
    }

    /// Returns the buffer of a record, for another record.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        self.records.recycle(buffer);
    }
}

/// The number of polls of connections over RDMA for each poll of the sockets.
const POLLS_FOR_OTHERS: u32 = 32;
/// The number of bytes that are kept of a call of a client that no rule lets in: enough for the
/// header and the credential of a call, which is refused, and for the calls without arguments that
/// such a client may make.
const STRANGER_BYTES_MAX: usize = 4 << 10;
/// The maximum number of connections of NFS clients.
const CONNECTIONS_MAX: usize = 4096;
/// The maximum number of connections of one client machine.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 1024;
/// The time for which a client may read replies too slowly or leave a call incomplete.
const PATIENCE: Duration = Duration::from_secs(20);
/// The maximum time of a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of TLS handshakes of one client machine that are in progress.
const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;
