//! Who asks: authentication types and the identity that permission checks use.

/// Authentication types of the draft (3.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AuthType {
    /// No proof of identity.
    None = 0,
    /// User name and password in clear text.
    Text = 1,
    /// GSS-API.
    Gss = 2,
    /// The server's default.
    Default = 3,
}

impl AuthType {
    /// The type with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Text),
            2 => Some(Self::Gss),
            3 => Some(Self::Default),
            _ => None,
        }
    }
}

/// A POSIX identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, sorted.
    pub groups: Box<[u32]>,
}

impl Credentials {
    /// The identity of somebody who proved nothing (65534:65534).
    #[must_use]
    pub fn nobody() -> Self {
        Self { uid: 65_534, gid: 65_534, groups: Box::default() }
    }

    /// User 0, who passes every permission check.
    #[must_use]
    pub fn superuser() -> Self {
        Self { uid: 0, gid: 0, groups: Box::default() }
    }

    /// Whether this identity is user 0.
    #[must_use]
    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    /// Whether `gid` is the primary or a supplementary group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }
}
