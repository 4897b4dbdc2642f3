//! Replaces the TLS records in a build without the feature `tls`.
//!
//! Invariant: there are no records, because neither side of TLS can be created.

use std::convert::Infallible;
use std::os::fd::OwnedFd;

use super::layer::{Deliver, Step};
use crate::{BreakReason, CertificateIdentity, TlsFailure, TlsServer, TlsTarget};

/// The TLS records of one connection, of which there are none.
pub(crate) struct Records {
    pub has_ended: bool,
    pub is_ending: bool,
    never: Infallible,
}

impl Records {
    pub(crate) fn connecting(target: &TlsTarget) -> Result<Self, TlsFailure> {
        match target.never {}
    }

    /// Never called, because no server with TLS can be created in this build.
    pub(crate) fn answering(_server: &TlsServer) -> Result<Self, TlsFailure> {
        Err(TlsFailure::NotSpoken)
    }

    /// Never called, because no server with TLS can be created in this build.
    pub(crate) fn answering_rpc(_server: &TlsServer) -> Result<Self, TlsFailure> {
        Err(TlsFailure::NotSpoken)
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn begin(
        &mut self,
        _socket: &OwnedFd,
        _first_word: &[u8],
    ) -> Result<(), BreakReason> {
        match self.never {}
    }

    pub(crate) fn identity(&self) -> Option<CertificateIdentity> {
        match self.never {}
    }

    pub(crate) fn held(&self) -> usize {
        match self.never {}
    }

    pub(crate) fn unhold(&mut self, _buffer: &mut [u8]) -> usize {
        match self.never {}
    }

    pub(crate) fn hold(&mut self, _bytes: &[u8]) {
        match self.never {}
    }

    pub(crate) fn step(
        &mut self,
        _bytes: &mut [u8],
        _deliver: Deliver<'_>,
    ) -> (usize, Result<Step, BreakReason>) {
        match self.never {}
    }

    pub(crate) fn on_end(&self) -> Result<(), TlsFailure> {
        match self.never {}
    }

    pub(crate) fn on_reset(&self) -> BreakReason {
        match self.never {}
    }

    pub(crate) fn unsent(&self) -> usize {
        match self.never {}
    }

    pub(crate) fn has_unsent(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn flush(&mut self, _socket: &OwnedFd) -> Result<bool, BreakReason> {
        match self.never {}
    }

    pub(crate) fn say(&mut self, _socket: &OwnedFd, _plain: &[u8]) -> Result<bool, BreakReason> {
        match self.never {}
    }

    pub(crate) fn part(&mut self, _socket: &OwnedFd) {
        match self.never {}
    }
}
