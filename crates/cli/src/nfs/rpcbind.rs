//! Registers the server with the rpcbind of this machine, if there is one.
//!
//! `showmount -e` and clients that mount NFS version 3 without a port ask rpcbind for the ports.
//! Clients of version 4 need none.
//!
//! Invariant: a registration of another server is neither replaced nor removed.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dafs_nfs_wire::mount3::MOUNT3;
use dafs_nfs_wire::nfs3::NFS3;
use dafs_nfs_wire::nfs4::NFS4;
use dafs_nfs_wire::nfsacl3::NFSACL3;
use dafs_nfs_wire::nlm::v3::NLM3;
use dafs_nfs_wire::nlm::v4::NLM4;
use dafs_nfs_wire::nsm::NSM1;
use dafs_nfs_wire::rpc::{
    Accepted, Auth, Call, Outcome, Reply, ReplyBody, begin_record, encode_call, end_record,
};
use dafs_nfs_wire::rpcbind::v4::{Procedure, RPCBIND4};
use dafs_nfs_wire::rpcbind::{Registration, universal_address};
use dafs_nfs_wire::rquota::v1::RQUOTA1;
use dafs_nfs_wire::rquota::v2::RQUOTA2;
use dafs_nfs_wire::xdr::{Opaque, Reader, Writer, Xdr};

/// The registrations that this server has made. They are removed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    made: Vec<(Service, SocketAddr)>,
}

/// A program and its version.
type Service = (u32, u32);

impl Registered {
    /// Returns true if clients find the server by rpcbind.
    pub(crate) fn is_complete(&self) -> bool {
        !self.made.is_empty()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        for (service, address) in self.made.drain(..) {
            if let Err(error) = call(Procedure::Unset, service, address) {
                tracing::warn!(error = format!("{error:#}"), "rpcbind keeps a registration");
            }
        }
    }
}

/// Registers the services at these addresses. Without rpcbind, nothing is registered.
pub(crate) fn register(addresses: &[SocketAddr]) -> Registered {
    let mut registered = Registered::default();
    if UnixStream::connect(SOCKET).is_err() {
        return registered;
    }
    for service in SERVICES {
        for address in addresses.iter().copied().flat_map(families) {
            match call(Procedure::Set, service, address) {
                Ok(true) => registered.made.push((service, address)),
                Ok(false) => tracing::warn!(
                    program = service.0,
                    version = service.1,
                    "rpcbind has a registration of another server, such as the kernel's NFS server"
                ),
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "rpcbind refuses a registration");
                    return registered;
                }
            }
        }
    }
    registered
}

/// The programs that clients find by rpcbind.
const SERVICES: [Service; 10] = [
    (MOUNT3.number, MOUNT3.version),
    (NFS3.number, NFS3.version),
    (NFS4.number, NFS4.version),
    (NLM3.number, 1),
    (NLM3.number, NLM3.version),
    (NLM4.number, NLM4.version),
    (NSM1.number, NSM1.version),
    (NFSACL3.number, NFSACL3.version),
    (RQUOTA1.number, RQUOTA1.version),
    (RQUOTA2.number, RQUOTA2.version),
];

/// Returns the addresses to register. A socket at the unspecified IPv6 address serves IPv4, too.
fn families(address: SocketAddr) -> Vec<SocketAddr> {
    match address.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => {
            vec![address, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port())]
        }
        _ => vec![address],
    }
}

/// Makes or removes a registration. Returns false if rpcbind has not done so.
fn call(procedure: Procedure, (program, version): Service, address: SocketAddr) -> Result<bool> {
    let mut stream = UnixStream::connect(SOCKET).context("connecting to rpcbind")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&message(procedure, (program, version), address))?;
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).context("reading the reply of rpcbind")?;
    let length = u32::from_be_bytes(mark) & !LAST_FRAGMENT;
    if length > REPLY_BYTES_MAX {
        bail!("the reply of rpcbind is too long");
    }
    let mut reply = vec![0; length as usize];
    stream.read_exact(&mut reply).context("reading the reply of rpcbind")?;
    result_of(&reply)
}

fn message(procedure: Procedure, (program, version): Service, address: SocketAddr) -> Vec<u8> {
    let netid: &[u8] = if address.is_ipv4() { b"tcp" } else { b"tcp6" };
    let text = universal_address(&address);
    let owner = rustix::process::geteuid().as_raw().to_string();
    let mut writer = Writer::new();
    let record = begin_record(&mut writer);
    let call = Call {
        xid: XID,
        program: RPCBIND4.number,
        version: RPCBIND4.version,
        procedure: procedure as u32,
        credential: Auth::NONE,
        verifier: Auth::NONE,
        header: &[],
    };
    encode_call(&call, &mut writer);
    Registration {
        program,
        version,
        netid: Opaque(netid),
        address: Opaque(text.as_bytes()),
        owner: Opaque(owner.as_bytes()),
    }
    .encode(&mut writer);
    end_record(&mut writer, record);
    writer.bytes().to_vec()
}

fn result_of(reply: &[u8]) -> Result<bool> {
    let mut reader = Reader::new(reply);
    let header = Reply::decode(&mut reader).context("the reply of rpcbind")?;
    match header.body {
        ReplyBody::Accepted(Accepted { outcome: Outcome::Success, .. }) if header.xid == XID => {
            Ok(bool::decode(&mut reader).context("the reply of rpcbind")?)
        }
        body => bail!("rpcbind refuses the call: {body:?}"),
    }
}

/// The socket of rpcbind, at which it knows the user of the caller.
const SOCKET: &str = "/run/rpcbind.sock";
/// The number of a call. Each connection has only one.
const XID: u32 = 1;
/// The time limit for a reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// The bit of a mark that is set if the fragment is the last of its record.
const LAST_FRAGMENT: u32 = 1 << 31;
/// The maximum length of a reply in bytes.
const REPLY_BYTES_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_a_call_of_version_4_of_rpcbind() {
        let address: SocketAddr = "0.0.0.0:2049".parse().unwrap();
        let bytes = message(Procedure::Set, (100_005, 3), address);
        let words: Vec<u32> = bytes[..28]
            .chunks(4)
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words[0], LAST_FRAGMENT | (bytes.len() as u32 - 4));
        assert_eq!(words[1..], [XID, 0, 2, 100_000, 4, 1]);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("tcp") && text.contains("0.0.0.0.8.1"), "{text}");
        let both = families("[::]:2049".parse().unwrap());
        assert_eq!(both, ["[::]:2049".parse().unwrap(), address]);
    }

    #[test]
    fn the_answer_of_rpcbind_is_a_truth_value() {
        let mut writer = Writer::new();
        let body = dafs_nfs_wire::rpc::success(Auth::NONE);
        dafs_nfs_wire::rpc::encode_reply(XID, body, &mut writer);
        true.encode(&mut writer);
        assert!(result_of(writer.bytes()).unwrap());
        assert!(result_of(&writer.bytes()[..8]).is_err());
    }
}
