//! The one thread that owns the server: events in, answers out.
//!
//! Invariant: nothing here blocks but the wait for events and name-space calls of the
//! store, which a local file system answers from its caches.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dafs_dat::{
    Address, Completion, CompletionStatus, Domain, EndpointConfig, EndpointId, Event, Interface,
    InterfaceConfig, Operation, Peer, PendingId, Region, Rights, Waker, coarse_now,
};
use dafs_filer::{
    ChannelDescription, ChannelEnd, ChannelKind, Counters, Filer, PeerIdentity, Refusal,
    RequestClass, RequestHead,
};
use dafs_memory::{Memory, Pages};
use dafs_store::cache::{Cache, CacheStats, Progress};
use dafs_store::{File, Store};
use dafs_types::{CredHandle, Credentials, Entropy, FileHandle, Moment, StateId, Verifier, limits};
use dafs_wire::{
    ByteOrder, ConnectData, Request, RequestHeader, ResponseHeader, decode_arguments, is_intact,
};

use crate::channel::{Channel, Channels};
use crate::config::{ServerConfig, ServerError};
use crate::hits::Hits;
use crate::jobs::{Done, Job, Pool};
use crate::open::OpenRecord;
use crate::passwords::PasswordFile;
use crate::task::{Answer, Tasks};
use crate::transfer::{Cookie, Loan, Loans};

/// A file server, listening. [`Server::run`] serves until it is stopped.
pub struct Server {
    reactor: Reactor,
    addresses: Vec<Address>,
}

/// Stops a server from another thread or a signal handler's thread.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    waker: Waker,
}

/// Present amounts and counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerStats {
    /// Connections now.
    pub channels: usize,
    /// Requests parked now.
    pub parked_requests: usize,
    /// Requests since the start.
    pub requests: u64,
    /// Memory registered with the transport now, the cache's arena included.
    pub regions: usize,
    /// Ranges of memory lent to the transport now.
    pub loans: usize,
    /// Open files now, as the store sees them.
    pub open_files: usize,
    /// Sessions, clients and opens.
    pub filer: Counters,
    /// The cache's own.
    pub cache: CacheStats,
}

impl Server {
    /// Binds the addresses and prepares everything.
    ///
    /// # Errors
    /// [`ServerError`]: what could not be had, and why.
    pub fn new(config: &ServerConfig, store: Arc<dyn Store>) -> Result<Self, ServerError> {
        let system = |what| move |source| ServerError::System { what, source };
        let interface = Interface::new(InterfaceConfig {
            wait: config.wait,
            endpoints_max: config.filer.channels_max as usize + 64,
            connect_timeout: config.connect_timeout,
            ..InterfaceConfig::default()
        })
        .map_err(system("creating the transport interface"))?;
        let pool = Pool::new(config.pool_threads, &interface.waker())
            .map_err(system("starting threads"))?;
        let (reactor, addresses) =
            Reactor::new(config, store, interface, pool, Box::new(SystemEntropy))?;
        Ok(Self { reactor, addresses })
    }

    /// Where the server really listens.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A handle that stops [`Server::run`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.reactor.stop.clone(), waker: self.reactor.interface.waker() }
    }

    /// One turn of the loop, which waits for nothing.
    pub(crate) fn step(&mut self) {
        self.reactor.interface.poll();
        self.reactor.turn_at(self.reactor.present());
    }

    /// What is held for connections: channels, endpoints, requests parked, opens.
    pub(crate) fn held(&self) -> [usize; 4] {
        let reactor = &self.reactor;
        let (tasks, opens) = (reactor.tasks.count(), reactor.opens.len());
        [reactor.channels.count(), reactor.interface.endpoint_count(), tasks, opens]
    }

    /// Serves until stopped; then writes everything back. Returns the last numbers.
    pub fn run(mut self) -> ServerStats {
        self.reactor.run();
        self.reactor.write_everything_back();
        self.reactor.stats()
    }
}

impl Stopper {
    /// Ends the server's loop after the present turn.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }
}

pub(crate) struct Reactor {
    pub(crate) interface: Interface,
    pub(crate) filer: Filer,
    pub(crate) cache: Cache,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) pool: Pool,
    /// The cache's arena as registered.
    pub(crate) arena: Region,
    pub(crate) channels: Channels,
    pub(crate) tasks: Tasks,
    pub(crate) loans: Loans,
    pub(crate) opens: HashMap<StateId, OpenRecord>,
    /// Open files by handle: how to reach them whatever happened to their names.
    pub(crate) open_files: HashMap<FileHandle, (Arc<dyn File>, usize)>,
    /// Direct reads and writes under way; empty between turns.
    pub(crate) hits: Hits,
    /// Octets that all writes with checksums hold before they are looked at.
    pub(crate) sealed_bytes: usize,
    /// Files whose end an append is about to move.
    pub(crate) appending: Vec<dafs_store::cache::CachedFile>,
    pub(crate) passwords: Arc<PasswordFile>,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    verifier: u64,
    /// The request being served; lent out while it is.
    message: Vec<u8>,
    /// Header of an answer whose results did not fit the first buffer.
    pub(crate) unsent: Option<ResponseHeader>,
    /// Connections to break once the present event is dealt with.
    dropped: Vec<EndpointId>,
    started: Duration,
    /// Peers turned away for want of descriptors that the log knows of.
    turned_away: u64,
    pub(crate) now: Moment,
    last_tick: Moment,
    /// Fills go to the pool until then: the disk was slow.
    pub(crate) slow_until: Moment,
    requests: u64,
    request_bytes: u32,
    crc: bool,
    stop: Arc<AtomicBool>,
}

/// The system's random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        // The kernel's generator cannot fail once the machine has booted.
        let filled = getrandom::fill(&mut bytes);
        assert!(filled.is_ok(), "the system has no random numbers");
        u64::from_ne_bytes(bytes)
    }
}

impl Reactor {
    /// Binds the addresses and prepares everything.
    pub(crate) fn new(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        mut interface: Interface,
        pool: Pool,
        mut entropy: Box<dyn Entropy + Send>,
    ) -> Result<(Self, Vec<Address>), ServerError> {
        let system = |what| move |source| ServerError::System { what, source };
        let cache = Cache::new(config.cache).map_err(system("mapping the cache's arena"))?;
        let arena =
            interface.register(cache.arena(), Domain(0), Rights::LOCAL).ok_or_else(|| {
                system("registering the arena")(std::io::ErrorKind::OutOfMemory.into())
            })?;
        let boot = entropy.next_u64();
        let filer = Filer::new(config.filer.clone(), boot)?;
        let passwords = match &config.password_file {
            Some(path) => PasswordFile::load(path)?,
            None => PasswordFile::default(),
        };
        let mut addresses = Vec::new();
        for address in &config.listen {
            prepare_directory(address);
            let listener = interface.listen(address)?;
            addresses.push(interface.listener_address(listener).unwrap_or(address.clone()));
        }
        let reactor = Self {
            interface,
            filer,
            cache,
            store,
            pool,
            arena,
            channels: Channels::default(),
            tasks: Tasks::default(),
            loans: Loans::default(),
            opens: HashMap::new(),
            open_files: HashMap::new(),
            hits: Hits::default(),
            sealed_bytes: 0,
            appending: Vec::new(),
            passwords: Arc::new(passwords),
            entropy,
            verifier: boot,
            message: vec![0; limits::REQUEST_BYTES_MAX.max(limits::CONNECT_MESSAGE_BYTES)],
            unsent: None,
            dropped: Vec::new(),
            started: coarse_now(),
            turned_away: 0,
            now: Moment(0),
            last_tick: Moment(0),
            slow_until: Moment(0),
            requests: 0,
            request_bytes: config.filer.request_bytes_max.max(CONNECT_BYTES),
            crc: config.crc,
            stop: Arc::default(),
        };
        Ok((reactor, addresses))
    }

    fn run(&mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let idle = self.tasks.count() == 0 && self.cache.stats().dirty_bytes == 0;
            let pause = if idle { IDLE_PAUSE } else { BUSY_PAUSE };
            self.interface.wait(1, Some(pause));
            // Otherwise no time worth a look at the clock has passed since the last turn.
            if self.interface.has_slept() {
                self.now = self.present();
            }
            self.turn();
            self.pass_time(self.present());
        }
    }

    /// The present moment by the machine's clock, exact to a few milliseconds.
    #[inline]
    fn present(&self) -> Moment {
        let elapsed = coarse_now().saturating_sub(self.started).as_nanos();
        Moment(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// A turn, and what is due by time, at one moment.
    pub(crate) fn turn_at(&mut self, now: Moment) {
        self.now = now;
        self.turn();
        self.pass_time(now);
    }

    /// Everything that has happened since the last wait.
    fn turn(&mut self) {
        while let Some(event) = self.interface.next_event() {
            self.on_event(event);
        }
        self.settle();
        while let Some(done) = self.pool.take() {
            self.on_done(done);
        }
        while let Some(endpoint) = self.dropped.pop() {
            self.interface.disconnect(endpoint);
        }
    }

    /// Does what is due by time. Behind a turn: who asks gets the answer first.
    fn pass_time(&mut self, now: Moment) {
        self.now = now;
        if self.now.since(self.last_tick) >= TICK {
            self.last_tick = self.now;
            self.tick();
        }
    }

    fn on_event(&mut self, event: Event) {
        if !matches!(event, Event::Completion(_)) {
            self.settle();
        }
        match event {
            Event::Completion(completion) => self.on_completion(completion),
            Event::ConnectionRequest { pending, peer, private_data, .. } => {
                self.on_connection(pending, &peer, &private_data);
            }
            Event::Established { .. } => {}
            Event::Rejected { endpoint, .. } => self.interface.release(endpoint),
            Event::Broken { endpoint, reason } => {
                tracing::debug!(?endpoint, %reason, "connection ended");
                self.on_broken(endpoint);
            }
        }
    }

    #[inline]
    fn on_completion(&mut self, completion: Completion) {
        match Cookie::unpack(completion.context) {
            Cookie::Slot(slot) if completion.operation == Operation::Receive => {
                if completion.status == CompletionStatus::Success {
                    self.on_message(completion.endpoint, slot, completion.length);
                }
            }
            Cookie::Slot(_) | Cookie::Silent => {}
            cookie @ Cookie::Loan(_) => self.on_loan_done(cookie),
            Cookie::Task(task) => {
                let failed = completion.status != CompletionStatus::Success;
                self.on_transfer_done(task, failed);
            }
        }
    }

    /// The transport has read what was lent to it.
    #[inline]
    pub(crate) fn on_loan_done(&mut self, cookie: Cookie) {
        let Cookie::Loan(index) = cookie else { return };
        match self.loans.take(index) {
            Some(Loan::Pin(pin)) => self.cache.unpin(pin),
            Some(Loan::Pins(pins)) => {
                for pin in pins {
                    self.cache.unpin(pin);
                }
            }
            Some(Loan::Staging(key)) => self.interface.deregister(key),
            None => {}
        }
    }

    // ---- connections ----------------------------------------------------------------

    fn on_connection(&mut self, pending: PendingId, peer: &Peer, private_data: &[u8]) {
        let Ok((_, data)) = ConnectData::decode(private_data) else {
            tracing::debug!(peer = %peer.address, "connection without DAFS connect data");
            return self.interface.reject(pending, b"");
        };
        let identity = match &peer.process {
            Some(process) => PeerIdentity::Local(credentials_of(process)),
            None => PeerIdentity::Remote,
        };
        let description = ChannelDescription {
            client_instance: data.client_instance,
            client_session: data.client_session,
            kind: ChannelKind::from_number(data.channel as u32).unwrap_or(ChannelKind::Operation),
        };
        let id = match self.filer.channel_opened(identity, description, self.now) {
            Ok(id) => id,
            Err(refusal) => {
                tracing::warn!(peer = %peer.address, %refusal, "connection refused");
                return self.interface.reject(pending, b"");
            }
        };
        if self.accept(pending, id).is_none() {
            self.filer.channel_closed(id, ChannelEnd::Lost, self.now);
        }
    }

    /// Accepts and posts the receive for the first message. `None` if out of memory.
    fn accept(&mut self, pending: PendingId, id: dafs_filer::ChannelId) -> Option<()> {
        let credits = self.filer.config().credits_session_max + 1;
        let bytes = self.request_bytes as usize * usize::from(credits);
        let registered = Memory::anonymous(bytes, Pages::Small).ok().and_then(|inbox| {
            self.interface.register(&inbox, Domain(0), Rights::LOCAL).map(|region| (inbox, region))
        });
        let Some((inbox, inbox_region)) = registered else {
            self.interface.reject(pending, b"");
            return None;
        };
        let config = EndpointConfig {
            message_bytes_max: self.request_bytes,
            receives_max: u32::from(credits),
            crc: self.crc,
            ..EndpointConfig::default()
        };
        let endpoint = self.interface.accept(pending, Domain(0), &config, b"");
        let mut channel = Channel {
            id,
            endpoint,
            order: None,
            checksums: false,
            inbox,
            inbox_region,
            slot_bytes: self.request_bytes,
            free_slots: (0..credits).rev().collect(),
            receives_due: 0,
            sealed_bytes: 0,
            response_bytes_max: limits::CONNECT_MESSAGE_BYTES,
            who: Arc::new(Credentials::nobody()),
            recent: [None; 16],
            pending_login: None,
            closing: false,
        };
        let slot = channel.free_slots.pop()?;
        let cookie = Cookie::Slot(slot).pack();
        // If the connection is gone already, its end is on the way as an event.
        let _ = self.interface.post_receive(endpoint, cookie, &[channel.slot(slot)]);
        self.channels.insert(channel);
        Some(())
    }

    fn on_broken(&mut self, endpoint: EndpointId) {
        if let Some(channel) = self.channels.remove(endpoint) {
            let end = if channel.closing { ChannelEnd::Orderly } else { ChannelEnd::Lost };
            for closed in self.filer.channel_closed(channel.id, end, self.now) {
                self.release_open(&closed);
            }
            self.interface.deregister(channel.inbox_region.key);
        }
        self.interface.release(endpoint);
    }

    /// Breaks a connection after the present event.
    pub(crate) fn give_up(&mut self, endpoint: EndpointId) {
        self.dropped.push(endpoint);
    }

    /// Breaks the connection of a filer's channel.
    pub(crate) fn give_up_channel(&mut self, id: dafs_filer::ChannelId) {
        if let Some(endpoint) = self.channels.endpoint_of(id) {
            self.give_up(endpoint);
        }
    }

    // ---- requests -------------------------------------------------------------------

    #[inline]
    fn on_message(&mut self, endpoint: EndpointId, slot: u16, length: u32) {
        self.fetch_ahead();
        let Some(channel) = self.channels.get_mut(endpoint) else { return };
        let mut message = std::mem::take(&mut self.message);
        let length = (length as usize).min(message.len());
        let at = usize::from(slot) * channel.slot_bytes as usize;
        channel.inbox.read(at, &mut message[..length]);
        channel.free_slots.push(slot);
        if channel.order.is_none() {
            channel.order = RequestHeader::detect_order(&message[..length]);
        }
        self.serve(endpoint, &message[..length]);
        self.message = message;
    }

    fn serve(&mut self, endpoint: EndpointId, message: &[u8]) {
        self.requests += 1;
        let Some(channel) = self.channels.get(endpoint) else { return };
        let (id, checksums) = (channel.id, channel.checksums);
        let Some(order) = channel.order else {
            tracing::debug!(?endpoint, "first message is no DAFS request");
            return self.give_up(endpoint);
        };
        let header = match RequestHeader::decode(order, message) {
            Ok(header) => header,
            Err(error) => {
                tracing::debug!(?endpoint, %error, "message without a readable header");
                return self.give_up(endpoint);
            }
        };
        self.fetch_ahead();
        let answer = Answer {
            endpoint,
            stream: header.stream,
            sequence: header.sequence,
            analyzer: header.analyzer,
        };
        // Of a damaged request nothing is believed but where its answer goes.
        let is_damaged = checksums && !is_intact(message);
        let head = if is_damaged { head_of_damaged(&header) } else { head_of(&header) };
        match self.filer.admit(id, &head, self.now) {
            Ok(_) => {}
            Err(Refusal::Answer(status)) => return self.fail(answer, status),
            Err(Refusal::Break(reason)) => {
                tracing::warn!(?endpoint, ?reason, "client broke the credit rules");
                return self.give_up(endpoint);
            }
        }
        if is_damaged {
            return self.fail(answer, dafs_types::Status::Chksum);
        }
        self.fetch_ahead();
        // Looked at where it is: a request is a few cache lines.
        match &decode_arguments(order, &header, message) {
            Ok(request) => {
                if !matches!(request, Request::ReadDirect(_) | Request::WriteDirect(_)) {
                    self.settle();
                }
                if let Err(status) = self.dispatch(answer, &header, request) {
                    self.fail(answer, status);
                }
            }
            Err(error) => {
                tracing::debug!(?endpoint, %error, "request refused");
                self.fail(answer, error.status());
            }
        }
    }

    /// Serves one request. `Err` is answered by the caller; `Ok` means that the
    /// answer is sent or that the request is parked.
    fn dispatch(
        &mut self,
        answer: Answer,
        header: &RequestHeader,
        request: &Request<'_>,
    ) -> Result<(), dafs_types::Status> {
        match request {
            Request::ReadDirect(r) => self.read_direct(answer, r),
            Request::ReadInline(r) => self.read_inline(answer, r),
            Request::WriteDirect(r) => self.write_direct(answer, r),
            Request::WriteInline(r) => self.write_inline(answer, r),
            Request::AppendInline(r) => self.append_inline(answer, r),
            Request::AppendDirect(r) => self.append_direct(answer, r),
            Request::Commit(r) => self.commit(answer, r),
            Request::CacheHint(r) => self.cache_hint(answer, r),
            Request::ClientConnect(r) => self.client_connect(answer, header, r),
            Request::ClientConnectAuth(r) => self.client_connect_auth(answer, header, r),
            Request::ClientAuth(r) => self.client_auth(answer, r),
            Request::SecInfo(_) => self.security_info(answer),
            Request::Disconnect(_) => self.disconnect(answer),
            Request::Null(_) => self.null(answer),
            Request::GetRootHandle(_) => self.root_handle(answer),
            Request::Lookup(r) => self.lookup(answer, r),
            Request::LookupP(r) => self.lookup_parent(answer, r),
            Request::Access(r) => self.access(answer, r),
            Request::GetAttrInline(r) => self.get_attributes(answer, r),
            Request::GetAttrDirect(r) => self.get_attributes_direct(answer, r),
            Request::GetFsAttr(r) => self.get_fs_attributes(answer, r),
            Request::SetAttrInline(r) => self.set_attributes(answer, r),
            Request::SetAttrDirect(r) => self.set_attributes_direct(answer, r),
            Request::Verify(r) => self.verify(answer, r, true),
            Request::NVerify(r) => self.verify(answer, r, false),
            Request::Open(r) => self.open(answer, r),
            Request::OpenDowngrade(r) => self.open_downgrade(answer, r),
            Request::Close(r) => self.close(answer, r),
            Request::Create(r) => self.create(answer, r),
            Request::Link(r) => self.link(answer, r),
            Request::Remove(r) => self.remove(answer, r),
            Request::Rename(r) => self.rename(answer, r),
            Request::ReadDirInline(r) => self.read_directory(answer, r),
            Request::ReadDirDirect(r) => self.read_directory_direct(answer, r),
            Request::ReadLinkInline(r) => self.read_link(answer, r),
            Request::ReadLinkDirect(r) => self.read_link_direct(answer, r),
            // Not in this version: each is decoded and refused.
            Request::ConnectBind(_)
            | Request::RegisterCred(_)
            | Request::ReleaseCred(_)
            | Request::ServerAuth(_)
            | Request::CheckResponse(_)
            | Request::FetchResponse(_)
            | Request::DiscardResponses(_)
            | Request::DelegPurge(_)
            | Request::DelegReturn(_)
            | Request::Lock(_)
            | Request::LockT(_)
            | Request::LockU(_)
            | Request::OpenAttr(_)
            | Request::BatchSubmit(_)
            | Request::HurryUp(_)
            | Request::GetFencingList(_)
            | Request::SetFencingList(_)
            | Request::BcGetAttr(_)
            | Request::BcNull(_)
            | Request::BcRecall(_)
            | Request::BcBatchCompletion(_) => Err(dafs_types::Status::NotSupp),
        }
    }

    // ---- jobs and time --------------------------------------------------------------

    fn on_done(&mut self, done: Done) {
        let progress = match done {
            Done::Filled(done) => self.cache.on_filled(done),
            Done::Flushed(done) => self.cache.on_flushed(done),
            Done::Synced(done) => self.cache.on_synced(done),
            Done::Sized(done) => self.cache.on_sized(done),
            Done::Login { endpoint, credentials } => {
                return self.on_login(endpoint, credentials);
            }
        };
        self.on_progress(progress);
    }

    /// Tries everything again that waits for this file or for room.
    #[inline]
    pub(crate) fn on_progress(&mut self, progress: Progress) {
        let [for_file, for_room] = self.tasks.woken_by(progress.file);
        for id in for_file {
            self.resume(id, progress.error);
        }
        // They may be of other files, and have nothing to do with its errors.
        for id in for_room {
            self.resume(id, None);
        }
    }

    /// Runs a job here if it is likely to be quick, or gives it to the pool. Returns
    /// true if it was run here.
    pub(crate) fn run_or_submit(&mut self, job: Job) -> bool {
        let is_sync = matches!(job, Job::Sync(_));
        let drawn = self.pool.draw_in_place();
        if is_sync || !drawn.unwrap_or(self.now >= self.slow_until) {
            self.pool.submit(job);
            return false;
        }
        let start = Instant::now();
        let done = job.run();
        if drawn.is_none() && start.elapsed() > SLOW_JOB {
            // The page cache did not have it: let the pool wait for the disk.
            self.slow_until = self.now.after(SLOW_PERIOD);
        }
        self.on_done(done);
        true
    }

    fn tick(&mut self) {
        let turned_away = self.interface.turned_away();
        if turned_away > self.turned_away {
            let count = turned_away - self.turned_away;
            tracing::warn!(
                "no more file descriptors: {count} connections turned away; raise LimitNOFILE \
                 or ulimit -n"
            );
            self.turned_away = turned_away;
        }
        self.cache.on_tick(self.now);
        self.flush_due();
        let actions = self.filer.on_tick(self.now);
        for (id, reason) in actions.close {
            tracing::info!(?reason, "closing a channel");
            self.give_up_channel(id);
        }
        for closed in actions.released {
            self.release_open(&closed);
        }
    }

    /// Starts the flushes that age or pressure ask for.
    pub(crate) fn flush_due(&mut self) {
        while self.pool.under_way() < POOL_QUEUE_MAX {
            let Some(job) = self.cache.poll_flush() else { break };
            self.pool.submit(Job::Flush(job));
        }
    }

    /// Before the end: everything dirty goes to the files.
    fn write_everything_back(&mut self) {
        self.cache.flush_all();
        while let Some(job) = self.cache.poll_flush() {
            self.on_done(Job::Flush(job).run());
            while let Some(done) = self.pool.take() {
                self.on_done(done);
            }
        }
        while self.pool.under_way() > 0 {
            self.interface.wait(1, Some(BUSY_PAUSE));
            while let Some(done) = self.pool.take() {
                self.on_done(done);
            }
        }
    }

    pub(crate) fn stats(&self) -> ServerStats {
        ServerStats {
            channels: self.channels.count(),
            parked_requests: self.tasks.count(),
            requests: self.requests,
            regions: self.interface.region_count(),
            loans: self.loans.count(),
            open_files: self.open_files.len(),
            filer: self.filer.counters(),
            cache: self.cache.stats(),
        }
    }

    // ---- what others ask ------------------------------------------------------------

    /// Changes when unstable data may have been lost: at a restart, and after a write
    /// error made the cache give data up.
    pub(crate) fn write_verifier(&self) -> Verifier {
        Verifier((self.verifier ^ self.cache.loss_count()).to_le_bytes())
    }

    #[inline]
    pub(crate) fn order_of(&self, endpoint: EndpointId) -> Option<ByteOrder> {
        self.channels.get(endpoint)?.order
    }

    #[inline]
    pub(crate) fn has_checksums(&self, endpoint: EndpointId) -> bool {
        self.channels.get(endpoint).is_some_and(|channel| channel.checksums)
    }

    pub(crate) fn response_bytes_max(&self, endpoint: EndpointId) -> usize {
        self.channels.get(endpoint).map_or(0, |channel| channel.response_bytes_max)
    }

    /// Who a request acts as.
    pub(crate) fn who(&self, answer: Answer) -> Arc<Credentials> {
        match self.channels.get(answer.endpoint) {
            Some(channel) => channel.who.clone(),
            None => Arc::new(Credentials::nobody()),
        }
    }
}

#[inline]
fn head_of(header: &RequestHeader) -> RequestHead {
    RequestHead {
        stream: header.stream,
        sequence: header.sequence,
        desired_nreq: header.desired_credits,
        chain_flags: dafs_filer::ChainFlags(header.chain_flags.0),
        cred_handle: header.credentials,
        class: RequestClass::of(header.procedure),
    }
}

fn head_of_damaged(header: &RequestHeader) -> RequestHead {
    RequestHead {
        desired_nreq: 0,
        chain_flags: dafs_filer::ChainFlags::default(),
        cred_handle: CredHandle::default(),
        class: RequestClass::Ordinary,
        ..head_of(header)
    }
}

/// The identity the kernel vouches for, as it was when the peer connected.
fn credentials_of(process: &dafs_dat::PeerProcess) -> Credentials {
    let mut groups = process.groups.clone();
    groups.sort_unstable();
    Credentials { uid: process.uid, gid: process.gid, groups }
}

/// Makes the directory of a Unix socket, if it is missing; binding tells the rest.
fn prepare_directory(address: &Address) {
    if let Address::Shm(path) = address
        && let Some(parent) = path.parent().filter(|parent| *parent != Path::new(""))
    {
        let _ = std::fs::create_dir_all(parent);
    }
}

const CONNECT_BYTES: u32 = limits::CONNECT_MESSAGE_BYTES as u32;
const TICK: Duration = Duration::from_millis(100);
const BUSY_PAUSE: Duration = Duration::from_millis(100);
const IDLE_PAUSE: Duration = Duration::from_secs(1);
/// A job run in place that took longer must have waited for a disk.
const SLOW_JOB: Duration = Duration::from_micros(400);
const SLOW_PERIOD: Duration = Duration::from_millis(20);
/// Flushes given to the pool at one time.
const POOL_QUEUE_MAX: usize = 32;
