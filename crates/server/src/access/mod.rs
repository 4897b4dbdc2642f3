//! Who may come in, how they prove who they are, and what they see of the exports then.
//!
//! Invariant: nobody gets further by what they say than by what they have proved.

pub(crate) mod accept;
pub(crate) mod authorize;
pub(crate) mod credentials;
pub(crate) mod entrance;
pub(crate) mod failures;
pub(crate) mod gss;
pub(crate) mod logins;
pub(crate) mod one_time;
pub(crate) mod passwords;
pub(crate) mod rule_text;
pub(crate) mod users;
