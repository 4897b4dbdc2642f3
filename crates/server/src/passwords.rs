//! The password file: one user a line, `name:uid:gid:group,group:hash`, hashes by
//! argon2id in the usual text form.
//!
//! Invariant: a check takes as long for an unknown user as for a wrong password of some user.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use dafs_types::Credentials;

use crate::one_time::OneTimeUser;

/// Users and their hashes, as read at one moment.
#[derive(Clone, Debug, Default)]
pub struct PasswordFile {
    users: Vec<User>,
    /// In no file, and good for this run of the server.
    one_time: Option<OneTimeUser>,
    /// Chooses whose hash an unknown user's password is checked against.
    choice: RandomState,
}

#[derive(Clone, Debug)]
struct User {
    name: String,
    credentials: Credentials,
    hash: String,
}

/// Why a password file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// It could not be read or written.
    #[error("cannot use the password file {path} (`dafs passwd` makes one)")]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is malformed.
    #[error(
        "password file {path}, line {line}: {what}; expected name:uid:gid:group,group:hash \
         (`dafs passwd` writes it)"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The name cannot stand in the file.
    #[error("user name {0:?} is empty or contains a colon or control character")]
    Name(String),
    /// Hashing failed.
    #[error("hashing the password failed: {0}")]
    Hash(String),
}

impl PasswordFile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`PasswordError`] with the line that is wrong.
    pub fn load(path: &Path) -> Result<Self, PasswordError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PasswordError::System { path: path.into(), source })?;
        let mut users = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            users.push(parse(line).map_err(|what| PasswordError::Line {
                path: path.into(),
                line: index + 1,
                what,
            })?);
        }
        Ok(Self { users, one_time: None, choice: RandomState::new() })
    }

    /// The same with a user who is in no file. [`PasswordFile::save`] leaves that one out.
    #[must_use]
    pub fn with_one_time(self, one_time: Option<OneTimeUser>) -> Self {
        Self { one_time, ..self }
    }

    /// Writes the file anew, readable by its owner only, in place of the old one.
    ///
    /// # Errors
    /// [`PasswordError::System`].
    pub fn save(&self, path: &Path) -> Result<(), PasswordError> {
        let failed = |source| PasswordError::System { path: path.into(), source };
        let mut text = String::new();
        for user in &self.users {
            let groups: Vec<String> =
                user.credentials.groups().iter().map(u32::to_string).collect();
            text.push_str(&format!(
                "{}:{}:{}:{}:{}\n",
                user.name,
                user.credentials.uid(),
                user.credentials.gid(),
                groups.join(","),
                user.hash
            ));
        }
        let temporary = path.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&temporary).map_err(failed)?;
        io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        std::fs::rename(&temporary, path).map_err(failed)
    }

    /// Adds a user or changes one.
    ///
    /// # Errors
    /// [`PasswordError::Name`] or [`PasswordError::Hash`].
    pub fn set(
        &mut self,
        name: &str,
        credentials: Credentials,
        password: &str,
    ) -> Result<(), PasswordError> {
        if name.is_empty() || name.contains(|c: char| c == ':' || c.is_control()) {
            return Err(PasswordError::Name(name.into()));
        }
        let hash = hash(password)?;
        self.remove(name);
        self.users.push(User { name: name.into(), credentials, hash });
        Ok(())
    }

    /// Removes a user; false if there was none.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.users.len();
        self.users.retain(|user| user.name != name);
        self.users.len() < before
    }

    /// Whether nobody could come in by a password.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.one_time.is_none()
    }

    /// The users' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.users.iter().map(|user| user.name.as_str())
    }

    /// Who a user is, password or not.
    #[must_use]
    pub fn credentials(&self, name: &str) -> Option<Credentials> {
        let user = self.users.iter().find(|user| user.name == name);
        user.map(|user| user.credentials.clone())
    }

    /// Who this is, if the password is right. Takes tens of milliseconds by design.
    #[must_use]
    pub fn verify(&self, name: &str, password: &str) -> Option<Credentials> {
        if let Some(one_time) = &self.one_time
            && let Some(who) = one_time.named(name)
        {
            return one_time.is_password(password).then(|| who.clone());
        }
        let user = self.users.iter().find(|user| user.name == name);
        let hash = user.map_or_else(|| self.decoy(name), |user| user.hash.as_str());
        let parsed = PasswordHash::new(hash).ok()?;
        let matches = Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok();
        user.filter(|_| matches).map(|user| user.credentials.clone())
    }

    /// The hash that an unknown user's password is checked against: some user's, always the same
    /// one for the same name, since hashes may differ in what they cost.
    fn decoy(&self, name: &str) -> &str {
        let count = self.users.len().max(1) as u64;
        let chosen = usize::try_from(self.choice.hash_one(name) % count).unwrap_or(0);
        self.users.get(chosen).map_or(UNKNOWN_USER_HASH, |user| user.hash.as_str())
    }
}

fn parse(line: &str) -> Result<User, &'static str> {
    let mut fields = line.splitn(5, ':');
    let mut field = |what| fields.next().ok_or(what);
    let name = field("name is missing")?.to_string();
    let uid = field("uid is missing")?.parse().map_err(|_| "uid is not a number")?;
    let gid = field("gid is missing")?.parse().map_err(|_| "gid is not a number")?;
    let mut groups = Vec::new();
    for group in field("groups are missing")?.split(',').filter(|group| !group.is_empty()) {
        groups.push(group.parse().map_err(|_| "a group is not a number")?);
    }
    let credentials = Credentials::new(uid, gid, groups)
        .map_err(|_| "4294967295 (-1) is no user and no group")?;
    let hash = field("hash is missing")?.to_string();
    PasswordHash::new(&hash).map_err(|_| "hash is malformed")?;
    Ok(User { name, credentials, hash })
}

fn hash(password: &str) -> Result<String, PasswordError> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|e| PasswordError::Hash(e.to_string()))?;
    let salt = SaltString::encode_b64(&salt).map_err(|e| PasswordError::Hash(e.to_string()))?;
    let hash = Argon2::default()
        .hash_password(password.as_bytes(), &salt)
        .map_err(|e| PasswordError::Hash(e.to_string()))?;
    Ok(hash.to_string())
}

/// Verified against where no file has users; no password has this hash.
const UNKNOWN_USER_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$\
    AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_survive_the_file_and_wrong_ones_fail() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwords");
        let mut file = PasswordFile::default();
        let who = Credentials::new(7, 8, [9, 10]).unwrap();
        file.set("ann", who.clone(), "open sesame").unwrap();
        file.save(&path).unwrap();
        let file = PasswordFile::load(&path).unwrap();
        assert_eq!(file.verify("ann", "open sesame"), Some(who));
        assert_eq!(file.verify("ann", "open"), None);
        assert_eq!(file.verify("bob", "open sesame"), None);
    }

    #[test]
    fn an_unknown_user_costs_what_some_user_costs() {
        let cheap = "$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$\
            AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let mut file = PasswordFile::default();
        assert_eq!(file.decoy("eve"), UNKNOWN_USER_HASH);
        for name in ["ann", "bob"] {
            let (credentials, hash) = (Credentials::nobody(), cheap.to_owned());
            file.users.push(User { name: name.to_owned(), credentials, hash });
        }
        assert_eq!(file.decoy("eve"), cheap);
        assert_eq!(file.verify("eve", ""), None);
        file.set("zoe", Credentials::nobody(), "open sesame").unwrap();
        for name in 0..50 {
            let name = format!("user{name}");
            assert_eq!(file.decoy(&name), file.decoy(&name), "a name costs always the same");
        }
        let names: Vec<_> = (0..50).map(|name| format!("user{name}")).collect();
        let dear = names.iter().filter(|name| file.decoy(name) != cheap).count();
        assert!((1..50).contains(&dear), "{dear}");
        let dear = names.iter().find(|name| file.decoy(name) != cheap).unwrap();
        assert_eq!(file.verify(dear, "open sesame"), None, "zoe's password lets in zoe alone");
    }

    #[test]
    fn a_bad_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwords");
        std::fs::write(&path, "# users\nann:x:1::h\n").unwrap();
        let error = PasswordFile::load(&path).unwrap_err();
        assert!(error.to_string().contains("line 2: uid is not a number"), "{error}");
        for ids in ["4294967295:1:", "1:4294967295:", "1:1:4294967295"] {
            std::fs::write(&path, format!("ann:{ids}:{UNKNOWN_USER_HASH}\n")).unwrap();
            let error = PasswordFile::load(&path).unwrap_err();
            assert!(error.to_string().contains("line 1: 4294967295 (-1) is no user"), "{error}");
        }
    }
}
