//! Commands on names: each in a file of its own.

pub mod cat;
pub mod df;
pub mod ln;
pub mod ls;
pub mod mkdir;
pub mod mv;
pub mod ping;
pub mod rm;
mod show;
pub mod stat;

use anyhow::{Result, bail};
use dafs_client::Location;

/// The path of the second URL, which must be on the server of the first.
fn same_server(first: &str, second: &str) -> Result<String> {
    let (first, second) = (Location::parse(first)?, Location::parse(second)?);
    if first.server != second.server {
        bail!("{} and {} are different servers; use dafs cp", first.server, second.server);
    }
    Ok(second.path)
}
