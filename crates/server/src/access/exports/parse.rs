//! Parses a file in the format of exports(5).
//!
//! A line has a path and clients with their options. Paths may be quoted and contain octal escapes.
//! A backslash at the end of a line continues it, and `#` begins a comment.
//!
//! Invariant: a mistake anywhere refuses the whole file.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::clients::ClientName;
use super::options::ClientOptions;

/// The contents of an exports file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportsFile {
    /// The name of the file, for messages.
    pub file: String,
    /// The exports in the order of the file. Lines with the same path are one export.
    pub exports: Vec<ListedExport>,
}

/// One export of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExport {
    /// The path of the exported directory.
    pub path: PathBuf,
    /// The number of the first line with this path.
    pub line: usize,
    /// The clients in the order of the file.
    pub clients: Vec<ListedClient>,
}

/// One client of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedClient {
    /// The number of the line.
    pub line: usize,
    /// The clients to which the options apply.
    pub name: ClientName,
    /// The terms on which these clients use the export.
    pub options: ClientOptions,
}

/// A mistake in an exports file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ExportsError {
    /// The name of the file.
    pub file: String,
    /// The number of the line.
    pub line: usize,
    /// What is wrong, and what to do.
    pub text: String,
}

impl fmt::Display for ExportsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.text)
    }
}

impl ListedExport {
    /// Returns true if clients may enter file systems that are mounted beneath the export.
    #[must_use]
    pub fn cross_mounts(&self) -> bool {
        self.clients.iter().any(|client| client.options.cross_mounts)
    }
}

impl ExportsFile {
    /// Parses the text of a file. `file` is its name.
    ///
    /// # Errors
    /// [`ExportsError`] for the first mistake.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, ExportsError> {
        let mut found = Self { file: file.to_owned(), exports: Vec::new() };
        for (line, bytes) in lines(text) {
            let error = |text| ExportsError { file: file.to_owned(), line, text };
            let words = words(&bytes).map_err(error)?;
            let Some((path, clients)) = words.split_first() else { continue };
            let clients = clients_of(line, clients).map_err(error)?;
            found.add(line, path_of(path).map_err(error)?, clients);
        }
        Ok(found)
    }

    fn add(&mut self, line: usize, path: PathBuf, mut clients: Vec<ListedClient>) {
        match self.exports.iter_mut().find(|export| export.path == path) {
            Some(export) => export.clients.append(&mut clients),
            None => self.exports.push(ListedExport { path, line, clients }),
        }
    }
}

/// Joins continued lines. Returns each line with the number of its first part.
fn lines(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut found: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut continues = false;
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (line, goes_on) = match line.strip_suffix(b"\\") {
            Some(line) => (line, true),
            None => (line, false),
        };
        match found.last_mut().filter(|_| continues) {
            Some((_, whole)) => {
                whole.push(b' ');
                whole.extend_from_slice(line);
            }
            None => found.push((index + 1, line.to_vec())),
        }
        continues = goes_on;
    }
    found
}

/// Splits a line at white space outside of quotes, and replaces octal escapes.
fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        let start = rest.iter().position(|byte| !byte.is_ascii_whitespace());
        rest = match start {
            Some(start) if rest[start] != b'#' => &rest[start..],
            _ => return Ok(found),
        };
        let (mut word, mut at, mut is_quoted) = (Vec::new(), 0, false);
        while let Some(&byte) = rest.get(at) {
            match byte {
                b'"' => is_quoted = !is_quoted,
                byte if byte.is_ascii_whitespace() && !is_quoted => break,
                b'\\' => match octal(&rest[at + 1..]) {
                    Some(escaped) => {
                        word.push(escaped);
                        at += 3;
                    }
                    None => word.push(byte),
                },
                byte => word.push(byte),
            }
            at += 1;
        }
        if is_quoted {
            return Err("a quotation mark is not closed".to_owned());
        }
        found.push(word);
        rest = &rest[at..];
    }
}

/// Returns the byte that three octal digits stand for.
fn octal(text: &[u8]) -> Option<u8> {
    let digits = text.get(..3)?;
    let is_digit = |byte: &u8| (b'0'..=b'7').contains(byte);
    let number = digits.iter().fold(0_u32, |sum, byte| sum * 8 + u32::from(byte & 7));
    digits.iter().all(is_digit).then(|| u8::try_from(number).ok()).flatten()
}

fn path_of(word: &[u8]) -> Result<PathBuf, String> {
    let shown = String::from_utf8_lossy(word);
    if !word.starts_with(b"/") {
        return Err(format!("{shown:?} is no absolute path; a line begins with a directory"));
    }
    if word.contains(&0) {
        return Err(format!("{shown:?} contains a zero byte"));
    }
    // Components such as ".." would make the name of the export differ from its place.
    let is_plain = |part: &[u8]| part != b"." && part != b"..";
    if !word.split(|byte| *byte == b'/').all(is_plain) {
        return Err(format!("{shown:?} contains \".\" or \"..\"; write the path without them"));
    }
    let parts: Vec<&[u8]> =
        word.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    let path = [b"/".as_slice(), &parts.join(&b'/')].concat();
    Ok(PathBuf::from(OsString::from_vec(path)))
}

fn clients_of(line: usize, words: &[Vec<u8>]) -> Result<Vec<ListedClient>, String> {
    let mut defaults = ClientOptions::default();
    let mut clients: Vec<ListedClient> = Vec::new();
    for word in words {
        let word = std::str::from_utf8(word).map_err(|_| "a client is not text".to_owned())?;
        if let Some(options) = word.strip_prefix('-') {
            defaults = ClientOptions::default();
            defaults.add(options)?;
            continue;
        }
        let (name, list) = match word.split_once('(') {
            Some((name, list)) => {
                let list = list.strip_suffix(')').filter(|list| !list.contains(['(', ')']));
                let list = list.ok_or_else(|| {
                    format!("{word:?}: write CLIENT(OPTIONS), without spaces in the options")
                })?;
                (name, list)
            }
            None => (word, ""),
        };
        if name.is_empty() && words.len() > 1 {
            return Err(format!(
                "the options {word} have no client, so they would apply to every client; \
                remove the space before them, or write *{word}"
            ));
        }
        let mut options = defaults.clone();
        options.add(list)?;
        options.check()?;
        clients.push(ListedClient { line, name: ClientName::parse(name)?, options });
    }
    match clients.is_empty() {
        true => Err("the line names no client; write *(ro) to export to every client".to_owned()),
        false => Ok(clients),
    }
}

#[cfg(test)]
mod tests {
    use dafs_store::local::Squash;

    use super::*;

    fn parsed(text: &str) -> Result<ExportsFile, String> {
        ExportsFile::parse(text.as_bytes(), "exports").map_err(|error| error.to_string())
    }

    /// The example of exports(5), without the clients that need Kerberos.
    const EXAMPLE: &str = "
# sample /etc/exports file
/               master(rw) trusty(rw,no_root_squash)
/projects       proj*.local.domain(rw)
/usr            *.local.domain(ro) @trusted(rw)
/home/joe       pc001(rw,all_squash,anonuid=150,anongid=100)
/pub            *(ro,insecure,all_squash)
/srv/www        -sync,rw server @trusted @external(ro)
/foo            2001:db8:9:e54::/64(rw) 192.0.2.0/24(rw)
/build          buildhost[0-9].local.domain(rw)
";

    #[test]
    fn the_example_of_the_manual_is_understood() {
        let file = parsed(EXAMPLE).unwrap();
        let shown: Vec<String> = file
            .exports
            .iter()
            .flat_map(|export| {
                export.clients.iter().map(|client| {
                    let access = if client.options.read_only { "ro" } else { "rw" };
                    format!("{} {} {access}", export.path.display(), client.name)
                })
            })
            .collect();
        assert_eq!(
            shown,
            [
                "/ master rw",
                "/ trusty rw",
                "/projects proj*.local.domain rw",
                "/usr *.local.domain ro",
                "/usr @trusted rw",
                "/home/joe pc001 rw",
                "/pub * ro",
                "/srv/www server rw",
                "/srv/www @trusted rw",
                "/srv/www @external ro",
                "/foo 2001:db8:9:e54::/64 rw",
                "/foo 192.0.2.0/24 rw",
                "/build buildhost[0-9].local.domain rw",
            ]
        );
        assert_eq!(file.exports[0].clients[1].options.squash, Squash::Nobody);
        assert!(file.exports[4].clients[0].options.any_port);
        assert_eq!(file.exports[5].line, 8);
    }

    #[test]
    fn paths_may_be_quoted_and_escaped_and_lines_go_on() {
        let file = parsed("\"/srv/my files\" a\n/srv/b\\040c# \\\n  b(rw) \\\n c # end\n").unwrap();
        let paths: Vec<_> =
            file.exports.iter().map(|export| export.path.display().to_string()).collect();
        assert_eq!(paths, ["/srv/my files", "/srv/b c#"]);
        assert_eq!(file.exports[1].clients.len(), 2);
        assert_eq!(file.exports[1].line, 2);
        let file = parsed("/a//b/ x(ro)\n/a/b y(rw)").unwrap();
        assert_eq!(file.exports.len(), 1, "two lines of one directory");
        assert_eq!(file.exports[0].clients[1].line, 2);
        assert_eq!(parsed("\n# nothing\n\\\n").unwrap().exports, []);
    }

    #[test]
    fn a_mistake_names_its_line() {
        for (text, part) in [
            ("\n/srv host(rx)", "exports:2: \"rx\" is no option"),
            ("srv host", "exports:1: \"srv\" is no absolute path"),
            ("/srv", "names no client"),
            ("/srv -rw", "names no client"),
            ("/srv host (rw)", "every client"),
            ("/srv host(rw", "CLIENT(OPTIONS)"),
            ("/srv host(rw, sync)", "CLIENT(OPTIONS)"),
            ("/srv host(rw)x", "CLIENT(OPTIONS)"),
            ("\"/srv host", "quotation mark"),
            ("/srv/../etc host", "without them"),
            ("/srv host(sec=null)", "sec= must contain"),
            ("/srv 10.0.0.0/40", "network"),
            ("/srv\\000 host", "zero byte"),
            ("# x\n\\\n/srv \\\n gss/krb5(ro)", "exports:2: "),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let file = parsed("/pub (ro)").unwrap();
        assert_eq!(file.exports[0].clients[0].name, ClientName::Anyone);
    }
}
