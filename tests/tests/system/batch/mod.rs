//! Tests batches (draft 4.2.3, 6.5.5, 6.5.16, 6.6.2): through the client (`client`), message by
//! message (`messages`), with all kinds of failures (`ends`), with fences and locks (`barred`), and
//! many against a model (`random`).

mod barred;
mod client;
mod ends;
mod lost;
pub(crate) mod messages;
mod random;
mod undone;
mod withheld;
