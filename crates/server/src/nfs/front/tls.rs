//! RPC-with-TLS (RFC 9289): a client asks whether the server has certificates, and starts TLS on
//! the same connection.
//!
//! Invariants:
//! - A client's certificate says something about the client's machine only. Who the user of a call
//!   is, the credential of the call says.
//! - Replies to calls that were sent without TLS are sent without TLS, before TLS starts.

use dafs_dat::records::LinkId;
use dafs_dat::{CertificateIdentity, TlsFailure};
use dafs_filer::Holder;
use dafs_nfs_wire::rpc::{Auth, AuthStat, Call, Credential, START_TLS, flavor};
use dafs_nfs_wire::xdr::Opaque;

use super::Front;
use crate::access::exports::rules::TransportSecurity;
use crate::nfs::calls;
use crate::nfs::gss::Route;
use crate::reactor::Reactor;

impl Front {
    /// Answers a call with the credential AUTH_TLS. The procedure NULL asks to start TLS, if the
    /// connection has not started it and no call is in progress; everything else is denied.
    pub(super) fn on_tls_probe(&mut self, reactor: &mut Reactor<'_>, id: LinkId, call: &Call<'_>) {
        let Some(link) = self.link(id) else { return };
        let (is_datagram, is_idle, address) = (link.is_datagram, link.waiting == 0, link.address);
        let is_probe = call.credential.credential() == Ok(Credential::Tls)
            && call.verifier == Auth::NONE
            && call.procedure == 0;
        if !is_probe || !is_idle || self.connections.is_tls(id) {
            calls::deny(&mut self.writer, call.xid, AuthStat::BadCred);
            return self.send(reactor, Route::plain(id), &[]);
        }
        let is_rdma = self.connections.is_rdma(id);
        let holder = Holder::at(address.ip().to_canonical());
        if is_rdma && reactor.shared.entrance.may_log(holder, reactor.shared.life.now()) {
            tracing::warn!(
                from = %address,
                "an NFS client asks for TLS over RDMA, which does not exist: it must mount with \
                xprtsec=none, or with proto=tcp; sec=krb5p protects its data over RDMA, too"
            );
        }
        let Some(tls) = self.tls.as_ref().filter(|_| !is_datagram && !is_rdma) else {
            // The verifier does not say STARTTLS, so the client goes on without TLS or gives up.
            calls::begin(&mut self.writer, call.xid);
            return self.send(reactor, Route::plain(id), &[]);
        };
        let verifier = Auth { flavor: flavor::NONE, body: Opaque(START_TLS) };
        calls::begin_verified(&mut self.writer, call.xid, verifier);
        self.connections.start_tls(id, tls, self.writer.bytes());
    }

    /// Notes that a connection is protected from now on, and decides again what the client sees.
    pub(super) fn on_secured(
        &mut self,
        reactor: &mut Reactor<'_>,
        id: LinkId,
        certificate: Option<&CertificateIdentity>,
    ) {
        let Some(link) = self.link(id) else { return };
        link.security = match certificate {
            Some(_) => TransportSecurity::Mtls,
            None => TransportSecurity::Tls,
        };
        let certificate = certificate.map(ToString::to_string);
        tracing::debug!(address = %link.address, certificate, "an NFS client has started TLS");
        self.judge(reactor, id);
    }

    /// Logs why TLS has failed, so that an administrator can mend the certificates.
    pub(super) fn on_tls_failed(
        &mut self,
        reactor: &mut Reactor<'_>,
        id: LinkId,
        failure: &TlsFailure,
    ) {
        let Some(address) = self.link(id).map(|link| link.address) else { return };
        let holder = Holder::at(address.ip().to_canonical());
        if reactor.shared.entrance.may_log(holder, reactor.shared.life.now()) {
            tracing::warn!(from = %address, %failure, "TLS with an NFS client has failed");
        }
    }
}
