//! A user-space peer for other machines' iWARP: both sides of `rping`, and a script of every kind
//! of message and of everything that must end a connection. `tests/interop` runs it with Linux siw;
//! `tests/interop/guest/verbs.c` is the same script over the kernel's verbs. It also implements
//! both sides of perftest's bandwidth measurements.
//!
//! `cargo run -p dafs-dat --example peer -- ROLE ADDRESS [WORD...]`
//!
//! Roles: `rping-server`, `rping-client`, `target`, `driver`, `perftest-server`,
//! `perftest-client`. Words: `crc`, `plain` (MPA revision 1), `ready=none|write|read|send`,
//! `depth=READS`, `count=ROUNDS`, `size=BYTES`, `scene=NAME` (see `script.rs`; of perftest
//! `send`, `write` or `read`), `must=LAYER/TYPE/CODE` (the Terminate that ends it).

mod link;
mod perftest;
mod rping;
mod script;

use std::net::SocketAddr;
use std::process::ExitCode;

use dafs_dat::{EndpointConfig, MpaOptions, ReadyToReceiveSet};

type Failure = Box<dyn std::error::Error>;

/// The options of the command line.
struct Options {
    address: SocketAddr,
    endpoint: EndpointConfig,
    count: u32,
    size: u32,
    scene: String,
    /// The code of the Terminate that must end the connection; empty for any end.
    must: String,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("peer: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), Failure> {
    let [role, address, words @ ..] = words else {
        return Err("usage: peer ROLE ADDRESS [WORD...], see the top of its source".into());
    };
    let options = Options::new(address.parse()?, words)?;
    match role.as_str() {
        "rping-server" => rping::serve(&options),
        "rping-client" => rping::ping(&options),
        "target" => script::serve(&options),
        "driver" => script::drive(&options),
        "perftest-server" => perftest::serve(&options),
        "perftest-client" => perftest::drive(&options),
        other => Err(format!("unknown role {other}").into()),
    }
}

impl Options {
    fn new(address: SocketAddr, words: &[String]) -> Result<Self, Failure> {
        let mut options = Self {
            address,
            endpoint: EndpointConfig::default(),
            count: 10,
            size: 64,
            scene: "everything".into(),
            must: String::new(),
        };
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let endpoint = &mut options.endpoint;
            match name {
                "crc" => endpoint.crc = true,
                "plain" => endpoint.mpa = MpaOptions { enhanced: false, ..endpoint.mpa },
                "ready" => endpoint.mpa.ready_to_receive = ready(value)?,
                "depth" => endpoint.read_depth = value.parse()?,
                "count" => options.count = value.parse()?,
                "size" => options.size = value.parse()?,
                "scene" => options.scene = value.into(),
                "must" => options.must = value.into(),
                other => return Err(format!("unknown word {other}").into()),
            }
        }
        Ok(options)
    }
}

fn ready(value: &str) -> Result<ReadyToReceiveSet, Failure> {
    let none = ReadyToReceiveSet::EMPTY;
    match value {
        "none" => Ok(none),
        "write" => Ok(ReadyToReceiveSet { write: true, ..none }),
        "read" => Ok(ReadyToReceiveSet { read: true, ..none }),
        "send" => Ok(ReadyToReceiveSet { send: true, ..none }),
        other => Err(format!("unknown way to be ready: {other}").into()),
    }
}
