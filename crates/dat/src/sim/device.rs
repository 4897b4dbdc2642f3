//! Simulated devices: what they call regions, and what they know of memory behind dmabufs.
//!
//! Invariant: a device calls no region as another device does, or as this side does. It gives the
//! name of a dmabuf once, and knows it as long as the region is registered. Only what comes over a
//! connection that goes through a device finds what the device knows: on this side the region of
//! a dmabuf has no bytes.
//!
//! A dmabuf is stood for by a memory file that is sealed against shrinking; the device maps it.

use dafs_memory::Memory;

use super::Network;
use crate::region::{DmabufError, RegionTable};
use crate::{LocalKey, Stag};

/// What the regions of an interface are registered as with simulated devices.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Vec<Registration>);

#[derive(Debug)]
struct Registration {
    network: Network,
    device: u32,
    region: LocalKey,
    name: Stag,
    /// From the dmabuf's start to the region's end.
    memory: Memory,
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(count) = self.network.state().registrations.get_mut(&self.device) {
            *count -= 1;
        }
    }
}

impl Registrations {
    /// What a device calls a region, if it knows it.
    pub(crate) fn name(&self, device: u32, region: LocalKey) -> Option<Stag> {
        let mut known = self.0.iter();
        let found = known.find(|known| known.device == device && known.region == region);
        found.map(|found| found.name)
    }

    /// What a device calls so.
    pub(crate) fn named(&self, device: u32, name: Stag) -> Option<(LocalKey, &Memory)> {
        let mut known = self.0.iter();
        let found = known.find(|known| known.device == device && known.name == name);
        found.map(|found| (found.region, &found.memory))
    }

    /// A region is gone.
    pub(crate) fn clear(&mut self, region: LocalKey) {
        self.0.retain(|known| known.region != region);
    }
}

impl RegionTable {
    /// Registers a dmabuf with a simulated device, unless the device knows it.
    pub(crate) fn dmabuf_to_simulated(
        &mut self,
        network: &Network,
        device: u32,
        key: LocalKey,
    ) -> Result<(), DmabufError> {
        let (fd, entry) = self.dmabuf(key)?;
        if self.simulated.name(device, key).is_some() {
            return Ok(());
        }
        let failed = |source| DmabufError::Device { device: format!("sim{device}"), source };
        let end = entry.region.address.saturating_add(entry.region.length);
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let memory =
            Memory::import(fd, end, true).map_err(|error| failed(std::io::Error::other(error)))?;
        let mut state = network.state();
        *state.registrations.entry(device).or_default() += 1;
        state.names_given += 1;
        let name = Stag(FIRST_NAME + state.names_given);
        drop(state);
        let network = network.clone();
        self.simulated.0.push(Registration { network, device, region: key, name, memory });
        Ok(())
    }
}

/// What a device calls a region that this side calls so, and the other way round.
pub(super) fn alias(device: Option<u32>, stag: Stag) -> Stag {
    device.map_or(stag, |device| {
        Stag(stag.0 ^ (ALIAS | device.wrapping_mul(ALIAS_SPREAD) & (ALIAS - 1)))
    })
}

/// No region of a table is called so.
const FIRST_NAME: u32 = 1 << 30;
/// In every name of a device for a region of this process's memory, and in no other.
const ALIAS: u32 = 1 << 29;
/// Devices of small numbers give names that are far from each other.
const ALIAS_SPREAD: u32 = 0x9e37_79b1;
