//! `dafs exports`: shows which NFS clients see which exports of a running server, and makes the
//! server read its configuration and exports file again.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::reload::Reload;
use crate::status;
use crate::terminal_text;

/// Arguments of `dafs exports`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A client, by address or name. Shows what this client gets. Default: all entries.
    #[arg(value_name = "CLIENT")]
    client: Option<String>,
    /// Make the server read its configuration, its exports file and its password file again first.
    /// If there is a mistake in one of them, the server goes on with what it had.
    #[arg(long)]
    reload: bool,
    /// The server's socket for shared memory, as `dafs serve` prints it. Default: the usual places
    /// for port 2050.
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let socket = arguments.socket.as_deref();
    if arguments.reload {
        let told = status::request(socket, RELOAD)?;
        if let Some(error) = told["error"].as_str() {
            bail!("nothing was reloaded: {}", terminal_text::printable(error));
        }
        if arguments.client.is_none() {
            println!("reloaded");
            return Ok(());
        }
    }
    let asked = match &arguments.client {
        Some(client) => format!("{SHOW} {}", address_of(client)?),
        None => SHOW.to_owned(),
    };
    let told = status::request(socket, &asked)?;
    for line in told["exports"].as_array().into_iter().flatten() {
        println!("{}", terminal_text::printable(line.as_str().unwrap_or_default()));
    }
    Ok(())
}

fn address_of(client: &str) -> Result<IpAddr> {
    if let Ok(address) = client.parse() {
        return Ok(address);
    }
    let mut found =
        (client, 0).to_socket_addrs().with_context(|| format!("looking up {client}"))?;
    let address = found.next().with_context(|| format!("{client} has no address"))?;
    Ok(address.ip())
}

/// Answers a request of `dafs exports`. `None` if it is another request.
pub(crate) fn answer(asked: &str, reload: &Reload) -> Option<Value> {
    let (what, rest) = asked.split_once(' ').unwrap_or((asked, ""));
    match what {
        RELOAD => Some(match reload.run() {
            Ok(()) => json!({ "reloaded": true }),
            Err(error) => json!({ "error": format!("{error:#}") }),
        }),
        SHOW => Some(json!({ "exports": reload.describe_nfs(rest.parse().ok()) })),
        _ => None,
    }
}

/// The request to reload.
const RELOAD: &str = "reload";
/// The request to show exports. A space and the address of a client may follow.
const SHOW: &str = "exports";
