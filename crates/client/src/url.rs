//! Locations: `dafs://user@host:port/path`, which may also begin with `dafs+tls://` (TLS) or
//! `dafs+verbs://` (an RDMA device), and `dafs+shm:///socket!/path`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use dafs_types::names::{from_wire, shown, to_wire};
use dafs_wire::DEFAULT_TCP_PORT;

/// A server and a path on it. `Display` and `Debug` omit the password.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    /// The server to connect to.
    pub server: ServerName,
    /// The user to authenticate as, and the user's password if one was given.
    pub user: Option<(String, Option<String>)>,
    /// The absolute path on the server, `/` for its root. The path may contain any bytes except
    /// NUL. In a URL, bytes that are not UTF-8 may appear unchanged or percent-encoded.
    pub path: OsString,
}

/// The ways to name a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerName {
    /// The server is named by host and port. If it is on this host, shared memory is used when
    /// available.
    Host {
        /// The host's name or IP address.
        host: String,
        /// The TCP port on which the server listens.
        port: u16,
        /// True if only TCP with TLS may be used.
        tls: bool,
    },
    /// The server is named by host and port, for a connection through an RDMA device.
    Verbs {
        /// The host's name or IP address.
        host: String,
        /// The port for the device's connection manager.
        port: u16,
    },
    /// The server is named by the path of its Unix socket.
    Socket(PathBuf),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server.to_string();
        match (&self.user, server.split_once("://")) {
            (Some((user, _)), Some((scheme, host))) => write!(f, "{scheme}://{user}@{host}")?,
            _ => f.write_str(&server)?,
        }
        let end = if matches!(self.server, ServerName::Socket(_)) { "!" } else { "" };
        write!(f, "{end}{}", shown(self.path.as_bytes()))
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(user, _)| user);
        let has_password = self.user.as_ref().is_some_and(|(_, password)| password.is_some());
        f.debug_struct("Location")
            .field("server", &self.server)
            .field("user", &user)
            .field("has_password", &has_password)
            .field("path", &self.path)
            .finish()
    }
}

/// Describes why a text is not a location. The description does not contain the password in the
/// text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a DAFS URL: {what}; write dafs://host[:port]/path, \
     dafs+tls://host[:port]/path, dafs+verbs://host[:port]/path or dafs+shm:///socket!/path"
)]
pub struct UrlError {
    text: String,
    what: &'static str,
}

impl std::str::FromStr for Location {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl Location {
    /// Creates a location from a server and a path, without a user name.
    #[must_use]
    pub fn new(server: ServerName, path: impl Into<OsString>) -> Self {
        Self { server, user: None, path: path.into() }
    }

    /// Returns true if a text looks like a DAFS URL rather than a local path.
    #[must_use]
    pub fn is_url(text: impl AsRef<OsStr>) -> bool {
        let text = text.as_ref().as_bytes();
        SCHEMES.iter().any(|scheme| text.starts_with(scheme.as_bytes()))
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// [`UrlError`] with the part of the URL that is wrong.
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Self, UrlError> {
        let given = text.as_ref().as_bytes();
        let wrong = |what| UrlError { text: without_passwords(&shown(given)), what };
        // Characters with a meaning in a URL stay unchanged; `bytes` restores the others.
        let text = &*to_wire(given);
        if let Some(rest) = text.strip_prefix("dafs+shm://") {
            let (socket, path) = rest.split_once('!').unwrap_or((rest, "/"));
            if !socket.starts_with('/') {
                return Err(wrong("the socket's path must be absolute"));
            }
            let path = absolute(path).ok_or_else(|| wrong("the path must be absolute"))?;
            let server = ServerName::Socket(PathBuf::from(OsString::from_vec(bytes(socket))));
            return Ok(Self { server, user: None, path });
        }
        let with = |scheme| text.strip_prefix(scheme);
        let (rest, tls, verbs) = with("dafs+tls://")
            .map(|rest| (rest, true, false))
            .or_else(|| Some((with("dafs+verbs://")?, false, true)))
            .or_else(|| Some((with("dafs://")?, false, false)))
            .ok_or_else(|| wrong("the scheme must be dafs, dafs+tls, dafs+verbs or dafs+shm"))?;
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let user = user.map(|user| match user.split_once(':') {
            Some((name, password)) => (decode(name), Some(decode(password))),
            None => (decode(user), None),
        });
        let (host, port) = split_port(host).map_err(wrong)?;
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        let path = absolute(path).ok_or_else(|| wrong("the path must be absolute"))?;
        let server = match verbs {
            true => ServerName::Verbs { host, port },
            false => ServerName::Host { host, port, tls },
        };
        Ok(Self { server, user, path })
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port, tls } => {
                let scheme = if *tls { "dafs+tls" } else { "dafs" };
                write_host(f, scheme, host, *port)
            }
            Self::Verbs { host, port } => write_host(f, "dafs+verbs", host, *port),
            Self::Socket(path) => write!(f, "dafs+shm://{}", path.display()),
        }
    }
}

fn write_host(f: &mut fmt::Formatter<'_>, scheme: &str, host: &str, port: u16) -> fmt::Result {
    match host.contains(':') {
        true => write!(f, "{scheme}://[{host}]:{port}"),
        false => write!(f, "{scheme}://{host}:{port}"),
    }
}

const SCHEMES: [&str; 4] = ["dafs://", "dafs+tls://", "dafs+verbs://", "dafs+shm://"];

/// Returns the paths of the sockets where a server on this host may listen for shared memory, best
/// first: in the user's runtime directory, in `/run/dafs`, and in `/tmp/dafs-UID`. The name of each
/// socket contains the TCP port. A server uses the first path whose directory it can create or
/// write.
#[must_use]
pub fn local_socket_candidates(port: u16) -> Vec<PathBuf> {
    let name = format!("{port}.sock");
    let mut candidates = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
        candidates.push(PathBuf::from(runtime).join("dafs").join(&name));
    }
    candidates.push(PathBuf::from("/run/dafs").join(&name));
    let uid = rustix::process::getuid().as_raw();
    candidates.push(PathBuf::from(format!("/tmp/dafs-{uid}")).join(&name));
    candidates
}

/// Returns the user id in the path of a socket in a `/tmp/dafs-UID` directory; `None` for other
/// paths.
pub(crate) fn user_of_socket(path: &Path) -> Option<u32> {
    let name = path.parent()?.strip_prefix("/tmp").ok()?.to_str()?;
    name.strip_prefix("dafs-")?.parse().ok()
}

/// Returns a text without the passwords in its URLs, for messages and for lists that every user can
/// read, such as the list of mounts. The URLs may be malformed or be part of a sentence.
#[must_use]
pub fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(range) = password_range(rest) {
        // The colon before the password is removed too.
        shown.push_str(&rest[..range.start - 1]);
        rest = &rest[range.end..];
    }
    shown + rest
}

/// Returns the range of the first password of a URL in a text, without the colon before it. In a
/// malformed URL the range covers everything that may be a password.
#[must_use]
pub fn password_range(text: &str) -> Option<Range<usize>> {
    let mut from = 0;
    while let Some(found) = text[from..].find("dafs") {
        let at = from + found;
        from = at + "dafs".len();
        let Some(start) = authority_start(text, at) else { continue };
        let rest = &text[start..];
        // In a sentence, a blank ends the URL.
        let url = rest.split(char::is_whitespace).next().unwrap_or(rest);
        if let Some(range) = password_in(url) {
            return Some(start + range.start..start + range.end);
        }
        from = start;
    }
    None
}

/// Returns the position after the scheme that begins at `at`; `None` if no scheme begins there.
fn authority_start(text: &str, at: usize) -> Option<usize> {
    let scheme = &text[at..];
    let end = scheme.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '+')?;
    let behind = scheme[end..].strip_prefix(':')?;
    // A URL with a missing slash is accepted.
    let slashes = behind.len() - behind.trim_start_matches('/').len();
    (!scheme.starts_with("dafs+shm") && slashes > 0).then_some(at + end + 1 + slashes)
}

/// Returns the range of the password in a URL after its scheme.
fn password_in(url: &str) -> Option<Range<usize>> {
    let authority = &url[..url.find('/').unwrap_or(url.len())];
    if let Some(sign) = authority.rfind('@') {
        let colon = authority[..sign].find(':')?;
        return (colon + 1 < sign).then_some(colon + 1..sign);
    }
    // The URL has no `@`. There may still be a password: one that contains a slash, so that its
    // first part looks like a port, or one after which the host is missing.
    let (host, port) = authority.rsplit_once(':')?;
    let is_port = port.bytes().all(|digit| digit.is_ascii_digit());
    // Error messages contain this example of a URL, which has no password.
    let is_form = host.ends_with('[') && port == "port]";
    if is_port || is_form || host.starts_with('[') {
        return None;
    }
    let end = url.rfind('@').unwrap_or(authority.len());
    Some(host.len() + 1..end)
}

fn absolute(path: &str) -> Option<OsString> {
    match path {
        "" => Some("/".into()),
        path if path.starts_with('/') => Some(OsString::from_vec(bytes(path))),
        _ => None,
    }
}

/// Splits a text into host and port, or returns a description of the error.
fn split_port(host: &str) -> Result<(String, u16), &'static str> {
    let parse = |port: &str| port.parse().map_err(|_| "the port must be a number from 0 to 65535");
    if let Some(rest) = host.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("the IPv6 address lacks its ']'")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => parse(port)?,
            None if rest.is_empty() => DEFAULT_TCP_PORT,
            None => return Err("only a colon and a port may follow the ']' of an IPv6 address"),
        };
        return Ok((address.to_owned(), port));
    }
    match host.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => {
            Err("an IPv6 address must be in brackets: [::1] or [::1]:2050")
        }
        Some((host, port)) => Ok((decode(host), parse(port)?)),
        None => Ok((decode(host), DEFAULT_TCP_PORT)),
    }
}

/// Decodes percent-encoding where the result must be UTF-8.
fn decode(text: &str) -> String {
    String::from_utf8(bytes(text)).unwrap_or_else(|_| text.to_owned())
}

/// Decodes percent-encoding; invalid sequences stay as they are.
fn bytes(text: &str) -> Vec<u8> {
    // Escaping works byte by byte, so that any part of an escaped text can be decoded separately.
    let bytes = from_wire(text).unwrap_or(Cow::Borrowed(text.as_bytes()));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let value = bytes
            .get(at + 1..at + 3)
            .filter(|digits| bytes[at] == b'%' && digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match value {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> (String, u16, OsString) {
        let location = Location::parse(text).unwrap();
        let ServerName::Host { host, port, .. } = location.server else { panic!("{text}") };
        (host, port, location.path)
    }

    #[test]
    fn hosts_ports_and_paths_are_told_apart() {
        assert_eq!(host("dafs://box"), ("box".into(), 2050, "/".into()));
        assert_eq!(host("dafs://box:99/a/b%20c"), ("box".into(), 99, "/a/b c".into()));
        assert_eq!(host("dafs://[::1]:7/x"), ("::1".into(), 7, "/x".into()));
        assert_eq!(host("dafs://[::1]"), ("::1".into(), 2050, "/".into()));
    }

    #[test]
    fn tls_is_part_of_the_servers_name() {
        for (text, is_tls) in [("dafs://box:7", false), ("dafs+tls://[::1]:7", true)] {
            let location = Location::parse(text).unwrap();
            assert!(matches!(location.server, ServerName::Host { tls, .. } if tls == is_tls));
            assert_eq!(location.server.to_string(), text);
        }
        assert!(Location::is_url("dafs+tls://box/"));
    }

    #[test]
    fn devices_have_a_scheme_of_their_own() {
        let location = Location::parse("dafs+verbs://[fe80::1%7]:9/x").unwrap();
        let server = ServerName::Verbs { host: "fe80::1%7".into(), port: 9 };
        assert_eq!((&location.server, location.path.as_os_str()), (&server, OsStr::new("/x")));
        assert_eq!(location.server.to_string(), "dafs+verbs://[fe80::1%7]:9");
        assert!(Location::is_url("dafs+verbs://box/"));
    }

    #[test]
    fn users_and_passwords_are_taken_off() {
        let location = Location::parse("dafs://ann:s%3Aecret@box/").unwrap();
        assert_eq!(location.user, Some(("ann".into(), Some("s:ecret".into()))));
    }

    #[test]
    fn a_socket_ends_at_the_exclamation_mark() {
        let location = Location::parse("dafs+shm:///run/dafs/a.sock!/data/x").unwrap();
        assert_eq!(location.server, ServerName::Socket("/run/dafs/a.sock".into()));
        assert_eq!(location.path, "/data/x");
        assert_eq!(Location::parse("dafs+shm:///run/a.sock").unwrap().path, "/");
    }

    #[test]
    fn places_in_tmp_say_whose_they_are() {
        let user = |path: &str| user_of_socket(Path::new(path));
        assert_eq!(user("/tmp/dafs-1000/2050.sock"), Some(1000));
        for path in ["/tmp/dafs-1000", "/tmp/dafs-ann/a", "/run/dafs-7/a", "/tmp/dafs-7/a/b", "/"] {
            assert_eq!(user(path), None, "{path}");
        }
        // Servers bind and clients look in the same places.
        let own = rustix::process::getuid().as_raw();
        assert_eq!(
            local_socket_candidates(7).last().and_then(|path| user_of_socket(path)),
            Some(own)
        );
    }

    #[test]
    fn a_path_is_any_bytes_as_they_are_or_percent_encoded() {
        for text in [&b"dafs://box/caf\xe9"[..], b"dafs://box/caf%E9", b"dafs://box/caf%e9"] {
            let location = Location::parse(OsStr::from_bytes(text)).unwrap();
            assert_eq!(location.path.as_bytes(), b"/caf\xe9");
        }
        // The code points that escape names in messages have no meaning in a URL.
        let location = Location::parse("dafs://box/\u{efe9}%+9%zz%").unwrap();
        assert_eq!(location.path, "/\u{efe9}%+9%zz%");
        let socket = Location::parse("dafs+shm:///run/%ff.sock!/").unwrap().server;
        assert_eq!(socket, ServerName::Socket(OsStr::from_bytes(b"/run/\xff.sock").into()));
    }

    #[test]
    fn no_form_of_a_url_shows_the_password() {
        let location = Location::parse("dafs://ann:s3cret@box:7/a/b").unwrap();
        assert_eq!(location.to_string(), "dafs://ann@box:7/a/b");
        assert!(!format!("{location:?}").contains("s3cret"), "{location:?}");
        assert!(Location::parse("dafs+shm:///a:b@c!/x").unwrap().to_string().ends_with("c!/x"));
        for text in [
            "dafs://ann:s3cret@box/",
            "dafs+tls://ann:s3cret@[::1]:7/x",
            "dafs+verbs://ann:p:s3cret@x@box/",
            "dafs://ann:s3cret/with/slash@box/",
            "dafs://ann:s3cret",
            "dafs:/ann:s3cret@box/",
            "dafs+ssh://ann:s3cret@box/",
            "dafs://ann:s3cret@box:port/",
            "dafs://ann:s3cret@:80/",
            "--map /x=dafs://ann:s3cret@box/ and dafs://bob:s3cret@box/: no such file",
        ] {
            assert!(!without_passwords(text).contains("s3cret"), "{}", without_passwords(text));
            if let Err(error) = Location::parse(text) {
                assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
            }
        }
        for text in [
            "dafs://box:2050/a@b:c",
            "dafs://ann@box/",
            "dafs+shm:///run/a:b@c!/x",
            "dafs://[::1]/x",
            "dafs: 3 files differ: a@b",
            &Location::parse("nothing").unwrap_err().to_string(),
        ] {
            assert_eq!(without_passwords(text), text);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("http://x/", "scheme"),
            ("dafs://:80/", "host"),
            ("dafs://x:port/", "port must be a number"),
            ("dafs://[::1/", "lacks its ']'"),
            ("dafs+tls://[fe80::1%7:2050/x", "lacks its ']'"),
            ("dafs://[::1]2050/", "only a colon and a port"),
            ("dafs://[::1]:port/", "port must be a number"),
            ("dafs://::1/", "in brackets"),
            ("dafs+verbs://fe80::1:2050/", "in brackets"),
            ("dafs+shm://rel!/", "absolute"),
            ("dafs+shm:///a!b", "absolute"),
        ] {
            let error = Location::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
