//! Measures the cost of one request in the tables: admission, the state id check and the credit
//! accounting of its reply. Prints nanoseconds; `--test` runs a few rounds only.

use std::hint::black_box;
use std::time::Instant;

use dafs_filer::{ClientKey, FileKey, Filer, FilerConfig, IoKind, OpenArguments};
use dafs_sessions::{
    AuthDecision, AuthRequest, ChainFlags, ChannelDescription, ChannelId, ChannelKind,
    ConnectArguments, Negotiated, PROTOCOL_VERSION, PeerIdentity, RequestClass, RequestHead,
    SessionConfig, Sessions,
};
use dafs_types::{
    CredHandle, DeleteDisposition, Moment, Random, SequenceNumber, ShareAccess, ShareDeny, StateId,
    StreamId, Verifier,
};

const CHANNELS: usize = 64;
const ROUNDS: u64 = 20_000_000;
const TEST_ROUNDS: u64 = 10_000;
const NOW: Moment = Moment(0);

fn head(class: RequestClass, stream: u16) -> RequestHead {
    RequestHead {
        stream: StreamId(stream),
        sequence: SequenceNumber(0),
        desired_credits: 8,
        chain_flags: ChainFlags(0),
        procedure: 138,
        cred_handle: CredHandle(0),
        class,
    }
}

fn session(
    (filer, sessions): (&mut Filer, &mut Sessions),
    entropy: &mut Random,
    number: usize,
) -> (ChannelId, ClientKey, StateId) {
    let description =
        ChannelDescription { client_instance: 1, client_session: 1, kind: ChannelKind::Operation };
    let channel = sessions.channel_opened(PeerIdentity::Remote, description, Moment(0)).unwrap();
    sessions.admit(filer, channel, &head(RequestClass::Connect, 0), NOW).unwrap();
    let arguments = ConnectArguments {
        protocol_version: PROTOCOL_VERSION,
        wanted: Negotiated::default(),
        fence_id: "",
        client_id_string: &number.to_le_bytes(),
        client_verifier: Verifier([1; 8]),
        order: dafs_wire::ByteOrder::NATIVE,
    };
    sessions.connect(filer, channel, &arguments, entropy).unwrap();
    let AuthDecision::Accept(who) = sessions.begin_auth(channel, AuthRequest::None) else {
        panic!("the anonymous identity is allowed by default");
    };
    sessions.finish_auth(filer, channel, Ok(who.into()), NOW).unwrap();
    sessions.finish(channel, StreamId(0));
    // The client's incarnation begins with its first request.
    sessions.admit(filer, channel, &head(RequestClass::Ordinary, 0), NOW).unwrap();
    sessions.finish(channel, StreamId(0));
    let arguments = OpenArguments {
        file: FileKey(number as u64),
        owner: b"owner",
        access: ShareAccess::Both,
        deny: ShareDeny::None,
        key: None,
        disposition: DeleteDisposition::DontCare,
        unlinked: false,
        is_reclaim: false,
    };
    let client = sessions.party_of(channel).client;
    (channel, client, filer.open(client, &arguments, NOW).unwrap().state_id)
}

fn measure(name: &str, rounds: u64, mut work: impl FnMut(u64) -> u64) {
    let mut checksum = 0;
    let start = Instant::now();
    for round in 0..rounds {
        checksum += work(black_box(round));
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / rounds as f64;
    println!("{name:32} {nanoseconds:6.2} ns  (checksum {checksum})");
}

fn main() {
    let testing = std::env::args().any(|argument| argument == "--test");
    let rounds = if testing { TEST_ROUNDS } else { ROUNDS };
    let mut filer = Filer::new(FilerConfig::default(), 7).unwrap();
    let mut sessions = Sessions::new(SessionConfig::default(), 7).unwrap();
    let mut entropy = Random::new(1);
    let both = &mut |number| session((&mut filer, &mut sessions), &mut entropy, number);
    let made: Vec<_> = (0..CHANNELS).map(both).collect();

    measure("admit + finish", rounds, |round| {
        let (channel, ..) = made[round as usize % CHANNELS];
        let head = head(RequestClass::Ordinary, (round % 8) as u16);
        let admitted = sessions.admit(&mut filer, channel, &head, Moment(round)).unwrap();
        let grant = sessions.finish(channel, head.stream);
        u64::from(admitted.outstanding + grant.target_credits)
    });
    measure("check_io", rounds, |round| {
        let number = round as usize % CHANNELS;
        let (_, client, state_id) = made[number];
        let allowed = filer.check_io(client, state_id, FileKey(number as u64), IoKind::Read, NOW);
        u64::from(allowed.is_ok())
    });
    measure("check_io, anonymous", rounds, |round| {
        let number = round as usize % CHANNELS;
        let (_, client, _) = made[number];
        let file = FileKey(number as u64);
        u64::from(filer.check_io(client, StateId::ANONYMOUS, file, IoKind::Read, NOW).is_ok())
    });
    measure("admit + check_io + finish", rounds, |round| {
        let number = round as usize % CHANNELS;
        let (channel, client, state_id) = made[number];
        let head = head(RequestClass::Ordinary, (round % 8) as u16);
        let admitted = sessions.admit(&mut filer, channel, &head, Moment(round)).unwrap();
        let allowed = filer.check_io(client, state_id, FileKey(number as u64), IoKind::Write, NOW);
        let grant = sessions.finish(channel, head.stream);
        u64::from(admitted.outstanding + grant.target_credits) + u64::from(allowed.is_ok())
    });
}
