//! The identity of clients without authentication.
//!
//! Invariant: over TCP and RDMA devices, a peer without authentication is refused unless the
//! configuration says which user it acts as. A loopback connection proves nothing, because every
//! user of the host can make one.

use std::io::BufRead;

use anyhow::{Context, Result, bail};
use dafs_server::OneTimeUser;
use dafs_types::Credentials;

use crate::access;
use crate::serve::Arguments;

/// The user name for a program that connects to a server that it started itself.
pub(crate) const OWN_USER: &str = "own";

/// Returns the credentials for clients without authentication, or `None` if they are refused.
pub(crate) fn anonymous(arguments: &Arguments) -> Result<Option<Credentials>> {
    let Some(text) = arguments.anonymous.as_ref().filter(|_| !arguments.no_anonymous) else {
        return Ok(None);
    };
    let who = match text.as_str() {
        "own" => own(),
        "nobody" => Credentials::nobody(),
        ids => access::identity(ids, "anonymous")
            .with_context(|| "or write \"nobody\", or \"own\" for the server's own user")?,
    };
    if who.is_superuser() && arguments.squash.is_none() {
        bail!(
            "anonymous = {text:?}: user 0 of remote clients is mapped to nobody, so this has no \
            effect; give --squash none if every client that can connect shall be root"
        );
    }
    Ok(Some(who))
}

/// Returns the one-time user for the program that starts this server. The password is the first
/// line of the standard input, which no other process can read.
pub(crate) fn one_time_user(arguments: &Arguments) -> Result<Option<OneTimeUser>> {
    if !arguments.one_time_password {
        return Ok(None);
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("reading the one-time password")?;
    match OneTimeUser::new(OWN_USER, own(), line.trim_end()) {
        Some(user) => Ok(Some(user)),
        None => bail!("the one-time password on the standard input is too short"),
    }
}

/// Returns warnings about the access of clients without authentication.
pub(crate) fn risks(arguments: &Arguments) -> Result<Vec<String>> {
    let open = open_addresses(arguments);
    let Some(who) = anonymous(arguments)?.filter(|_| !open.is_empty()) else {
        return Ok(Vec::new());
    };
    let ruled = arguments.allow_from.is_empty() && arguments.connect.is_empty();
    let comers = if ruled {
        "every client that can connect"
    } else {
        "every client that the rules \
    let connect"
    };
    Ok(vec![format!(
        "anonymous: {comers} to {} acts as user {} and group {} without authentication, and every \
        user of this host can connect; remove --anonymous (anonymous =) to require a password or \
        a ticket",
        open.join(" and "),
        who.uid(),
        who.gid()
    )])
}

/// True if the server listens on the network but no client can log in there.
pub(crate) fn is_closed(arguments: &Arguments) -> bool {
    !can_log_in(arguments) && !open_addresses(arguments).is_empty()
}

/// True if a network client could log in.
pub(crate) fn can_log_in(arguments: &Arguments) -> bool {
    let has_proofs = arguments.password_file.is_some()
        || arguments.one_time_password
        || arguments.keytab.is_some()
        || arguments.kerberos.is_some();
    let is_anonymous = arguments.anonymous.is_some() && !arguments.no_anonymous;
    has_proofs || is_anonymous
}

/// Returns the addresses at which a client without credentials can start a login.
fn open_addresses(arguments: &Arguments) -> Vec<String> {
    let wants_certificates =
        arguments.tls_only && arguments.tls_client_ca.is_some() && !arguments.tls_client_optional;
    let tcp = arguments.tcp_address();
    let tcp = (arguments.listens_on_tcp() && !wants_certificates).then(|| format!("TCP {tcp}"));
    let verbs = arguments.verbs.map(|address| format!("RDMA {address}"));
    tcp.into_iter().chain(verbs).collect()
}

/// Returns the credentials of the server's own user.
fn own() -> Credentials {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    Credentials::plain(user.as_raw(), group.as_raw()).expect("a process runs as a user")
}
