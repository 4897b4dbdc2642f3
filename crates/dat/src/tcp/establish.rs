//! Establishes connections: the MPA request and reply (RFC 5044 7, RFC 6581).
//!
//! Invariant: only start-up frames are sent until both sides agree. Bytes after the reply belong to
//! the stream and are kept.

use std::os::fd::AsFd;
use std::time::Duration;

use dafs_iwarp::{
    ConnectRequest, Established, Initiator, InitiatorOutcome, MULPDU_MAX, Receiver, Responder,
    Role, TERMINATE_FPDU_BYTES_MAX, Transmitter, Violation, mulpdu_for_segment_size,
};
use rustix::net::sockopt;

use super::layer::HANDSHAKE_RECORD;
use super::layer::{Layer, drain};
use super::options;
use super::plan::Habits;
use super::{Connection, Stream, system};
use crate::connection::{Context, Interest};
use crate::{
    Address, AddressError, BreakReason, EndpointConfig, Event, ListenerId, Peer, PendingId,
    TlsFailure,
};

/// The state of a connection.
pub(crate) enum Phase {
    /// Initiator: the TCP connect is in progress.
    Connecting(Box<Initiator>),
    /// Initiator: the request has been sent.
    Called(Box<Initiator>),
    /// Acceptor: the request has not arrived completely.
    Answering {
        listener: ListenerId,
        responder: Box<Responder>,
        /// True if the peer does not use TLS although this listener requires it.
        turns_away: bool,
    },
    /// Acceptor: the application has neither accepted nor rejected the connection yet.
    Pending(Box<Responder>),
    /// Acceptor: the peer closed the connection before the application decided.
    Vanished,
    Established,
    Closed,
}

/// Creates the start-up machine of an initiator.
pub(crate) fn initiator(
    config: &EndpointConfig,
    private_data: &[u8],
) -> Result<Initiator, AddressError> {
    let signed = options::signed(private_data, config.mpa.long_frames);
    Initiator::new(options::connecting(config), &signed).map_err(|_| AddressError::PrivateData {
        length: private_data.len(),
        limit: PRIVATE_BYTES_MAX,
    })
}

impl Connection {
    /// Starts the exchange of a new connection.
    pub(super) fn begin(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let interest = match self.phase {
            Phase::Connecting(_) => Interest::ReadWrite,
            _ => Interest::Read,
        };
        self.watch(context, interest)?;
        // On the same host the connect has already finished, so that no further turn is needed.
        if matches!(self.phase, Phase::Connecting(_)) && self.is_writable() {
            return self.on_connected(context);
        }
        Ok(())
    }

    fn is_writable(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut polled = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::OUT)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&now)) == Ok(1)
    }

    /// Continues after the TCP connect has succeeded or failed.
    pub(super) fn on_connected(&mut self, context: &mut Context<'_>) -> Result<(), BreakReason> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if let Err(error) = rustix::net::sockopt::socket_error(socket).unwrap_or_else(Err) {
            return Err(BreakReason::Unreachable(std::io::Error::from(error).into()));
        }
        let Phase::Connecting(initiator) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            return Ok(());
        };
        if let Layer::Tls(records) = &mut self.layer {
            records.begin(socket, initiator.request())?;
            self.phase = Phase::Called(initiator);
            return self.push_start(context);
        }
        // The buffer of a new socket always has room for these few hundred bytes.
        self.send_whole(initiator.request())?;
        self.phase = Phase::Called(initiator);
        self.watch(context, Interest::Read)
    }

    /// Passes bytes to the start-up machine and returns the number of bytes used. Not inlined, to
    /// keep it apart from the frequently used code for the bytes after the start-up.
    #[cold]
    #[inline(never)]
    pub(super) fn on_startup(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Result<usize, BreakReason> {
        let is_plain = self.layer.is_plain();
        match &mut self.phase {
            Phase::Called(initiator) => {
                let progress = match initiator.on_bytes(bytes) {
                    Ok(progress) => progress,
                    Err(violation) => {
                        let last_word = initiator.terminate_fpdu();
                        return Err(self.refuse_terms(last_word, violation));
                    }
                };
                match progress.outcome {
                    None => {}
                    Some(InitiatorOutcome::Accepted { established, private_data }) => {
                        let mut private_data = &private_data[..];
                        if self.config.mpa.long_frames {
                            (private_data, self.long_frames) = options::without_sign(private_data);
                        }
                        self.establish(context, &established, private_data.into())?;
                    }
                    Some(InitiatorOutcome::Rejected { private_data, .. })
                        if is_plain && private_data == TLS_ONLY =>
                    {
                        return Err(TlsFailure::Required.into());
                    }
                    Some(InitiatorOutcome::Rejected { private_data, .. }) => {
                        self.phase = Phase::Closed;
                        // If TLS records are being read, the code that reads them closes the
                        // connection at the end of the turn.
                        if !self.layer.is_lent() {
                            self.part();
                        }
                        self.abandon(context);
                        let endpoint = context.endpoint;
                        let private_data = private_data.into();
                        context.events.push(Event::Rejected { endpoint, private_data });
                    }
                }
                Ok(progress.consumed)
            }
            Phase::Answering { listener, responder, turns_away } => {
                let progress = match responder.on_bytes(bytes) {
                    Ok(progress) => progress,
                    Err(_) if is_plain && bytes.first() == Some(&HANDSHAKE_RECORD) => {
                        return Err(self.refuse_tls());
                    }
                    Err(violation) => {
                        return Err(BreakReason::PeerViolation(violation.to_string()));
                    }
                };
                if let Some(request) = progress.outcome {
                    let (listener, turns_away) = (*listener, *turns_away);
                    let responder = std::mem::take(responder);
                    self.phase = Phase::Pending(responder);
                    self.on_request(context, listener, turns_away, request)?;
                }
                Ok(progress.consumed)
            }
            // An initiator must not send more before the reply (RFC 5044 7.1).
            Phase::Pending(_) => {
                self.vanish();
                Ok(bytes.len())
            }
            _ => Ok(bytes.len()),
        }
    }

    /// Handles a complete request: passes it to the application, or refuses it if it cannot be
    /// served.
    fn on_request(
        &mut self,
        context: &mut Context<'_>,
        listener: ListenerId,
        turns_away: bool,
        request: ConnectRequest,
    ) -> Result<(), BreakReason> {
        if turns_away {
            self.refuse(TLS_ONLY);
            let what = "it connects without TLS, which this listener requires";
            return Err(BreakReason::PeerViolation(what.into()));
        }
        if request.markers {
            // The reply conveys the refusal: its R bit is set and its M bit, as always, is not.
            self.refuse(b"");
            let what = "it wants markers in the stream, which are not supported";
            return Err(BreakReason::PeerViolation(what.into()));
        }
        let certificate = self.certificate.take();
        let tls = !self.layer.is_plain();
        let address = Address::Tcp(self.peer);
        let (private_data, has_sign) = options::without_sign(&request.private_data);
        self.long_frames = has_sign;
        context.events.push(Event::ConnectionRequest {
            listener,
            pending: PendingId(context.endpoint),
            peer: Peer { address, process: None, tls, certificate },
            private_data: private_data.into(),
        });
        Ok(())
    }

    /// Accepts a pending connection and sends the reply.
    pub(super) fn answer(
        &mut self,
        context: &mut Context<'_>,
        private_data: &[u8],
    ) -> Result<(), BreakReason> {
        let Phase::Pending(responder) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            return Err(BreakReason::Peer);
        };
        let terms = options::accepting(&self.config, !self.layer.is_plain());
        let signed = options::signed(private_data, self.long_frames);
        self.long_frames = signed.len() > private_data.len();
        let (reply, established) = responder
            .accept(&terms, &signed)
            .map_err(|refusal| BreakReason::System(format!("cannot accept: {refusal}").into()))?;
        self.send_whole(&reply).map_err(|_| BreakReason::Peer)?;
        self.establish(context, &established, Box::default())?;
        self.push_out(context)
    }

    /// Records that the peer of a pending connection has closed it. `accept` reports this.
    pub(super) fn vanish(&mut self) {
        self.socket = None;
        self.phase = Phase::Vanished;
    }

    /// Rejects a pending connection.
    pub(super) fn refuse(&mut self, private_data: &[u8]) {
        if let Phase::Pending(responder) = std::mem::replace(&mut self.phase, Phase::Closed)
            && let Ok(reply) =
                responder.reject(&options::accepting(&self.config, false), private_data)
        {
            // If the peer has closed the connection, it needs no reply.
            let _ = self.send_whole(&reply);
        }
    }

    /// Informs a peer that begins with TLS that this listener has no TLS. The peer recognizes the
    /// reply, because no TLS record begins like an MPA reply.
    fn refuse_tls(&mut self) -> BreakReason {
        let length = NO_TLS.len() as u16;
        let reply = [&NO_TLS_REPLY[..], &length.to_be_bytes(), NO_TLS].concat();
        let _ = self.send_whole(&reply);
        if let Some(socket) = &self.socket {
            drain(socket);
        }
        BreakReason::PeerViolation("it speaks TLS, which this listener does not".into())
    }

    /// Informs a responder that its terms cannot be met, as RFC 6581 requires. Over TLS, whose
    /// records are being read at that moment, nothing can be sent, and the connection just ends.
    fn refuse_terms(
        &mut self,
        last_word: Option<([u8; TERMINATE_FPDU_BYTES_MAX], usize)>,
        violation: Violation,
    ) -> BreakReason {
        if let Some((bytes, length)) = last_word {
            // If the peer has closed the connection, it needs no reason.
            let _ = self.send_whole(&bytes[..length]);
        }
        BreakReason::PeerViolation(violation.to_string())
    }

    fn establish(
        &mut self,
        context: &mut Context<'_>,
        established: &Established,
        private_data: Box<[u8]>,
    ) -> Result<(), BreakReason> {
        let mulpdu = match self.long_frames {
            true => MULPDU_MAX,
            false => mulpdu_for_segment_size(self.segment_size()),
        };
        let mut transmitter = Transmitter::new(established, mulpdu);
        let mut receiver = Receiver::new(established);
        if transmitter.ready_to_receive_pending().is_some() {
            self.outgoing.ready_to_receive(&mut transmitter, &mut receiver)?;
        }
        let speaks_first = established.role == Role::Initiator;
        self.stream = Some(Stream { transmitter, receiver, speaks_first });
        self.inbound.habits = Habits::new(mulpdu);
        self.awaits_ready = established.ready_by_send;
        self.phase = Phase::Established;
        // An initiator sends its ready-to-receive indication only after the turn of reading. If it
        // wrote during that turn and found that the peer has closed the connection, the write would
        // start another read within the turn.
        let endpoint = context.endpoint;
        context.events.push(Event::Established { endpoint, private_data });
        Ok(())
    }

    /// Returns the effective TCP segment size of the connection, in bytes.
    fn segment_size(&self) -> u32 {
        let Some(socket) = &self.socket else { return SEGMENT_BYTES_DEFAULT };
        let mut size: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel writes one integer, whose size is passed.
        let result = unsafe {
            use std::os::fd::AsRawFd;
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_MAXSEG,
                (&raw mut size).cast(),
                &raw mut length,
            )
        };
        match u32::try_from(size) {
            Ok(size) if result == 0 && size > 0 => size,
            _ => SEGMENT_BYTES_DEFAULT,
        }
    }
}

/// Enables keepalive and a time limit for unacknowledged data. A peer that lost power sends
/// nothing, so an idle connection to it would never end. Without the limit, the kernel would wait a
/// quarter of an hour for an acknowledgement.
pub(super) fn watch_over(socket: impl AsFd) {
    let set = || {
        sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_COUNT)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED.as_millis() as u32)
    };
    // If the kernel refuses an option, the connection works, but does not detect a vanished peer.
    let _: rustix::io::Result<()> = set();
}

pub(super) fn io_reason(error: rustix::io::Errno) -> BreakReason {
    match error {
        rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE => BreakReason::Peer,
        other => system(other.into()),
    }
}

/// The idle time before the first keepalive probe. With the interval and the number of probes
/// below, a connection ends two minutes after the last data if no probe is acknowledged.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 6;
/// The maximum time for which sent data may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(120);
/// The number of payload bytes in one Ethernet frame.
const SEGMENT_BYTES_DEFAULT: u32 = 1460;
/// The private data of a reply that rejects a connection without TLS. The peer can show the text to
/// its user.
const TLS_ONLY: &[u8] = b"this listener takes TLS connections only";
/// The beginning of an unencrypted rejection, up to the length of its private data, for a peer that
/// begins with TLS.
const NO_TLS_REPLY: &[u8; 18] = b"MPA ID Rep Frame\x20\x01";
const NO_TLS: &[u8] = b"this listener does not speak TLS";
/// The maximum size in bytes of private data that fits in a request together with the enhanced
/// data.
const PRIVATE_BYTES_MAX: usize = dafs_iwarp::PRIVATE_DATA_OUT_BYTES_MAX;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn both_sides_ask_after_a_silent_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (config, now) = (EndpointConfig::default(), Instant::now());
        let out = Connection::connect(address, &config, b"", now).unwrap();
        let (socket, peer) = listener.accept().unwrap();
        let back = Connection::inbound(socket.into(), ListenerId::FIRST, peer, None, now);
        for socket in [out.socket.as_ref().unwrap(), back.socket.as_ref().unwrap()] {
            assert!(sockopt::socket_keepalive(socket).unwrap());
            let idle = sockopt::tcp_keepidle(socket).unwrap();
            let questions =
                sockopt::tcp_keepintvl(socket).unwrap() * sockopt::tcp_keepcnt(socket).unwrap();
            assert_eq!(idle + questions, Duration::from_secs(120));
            assert_eq!(sockopt::tcp_user_timeout(socket).unwrap(), 120_000);
        }
    }
}
