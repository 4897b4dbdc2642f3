//! Simulated devices: their STags for regions, and the dmabufs registered with them.
//!
//! Invariants:
//!
//! - The STags of a region on two devices differ, and they differ from the STag on this side.
//! - A device gives a dmabuf one STag, which is valid while the region is registered.
//! - Only requests over a connection that uses a device can access memory that is registered with
//!   that device. On this side, the region of a dmabuf has no bytes.
//!
//! A memory file that is sealed against shrinking represents a dmabuf. The device maps the file.

use dafs_memory::Memory;

use super::Network;
use crate::region::{DmabufError, RegionTable};
use crate::{LocalKey, Stag};

/// The registrations of an interface's regions with simulated devices.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Vec<Registration>);

#[derive(Debug)]
struct Registration {
    network: Network,
    device: u32,
    region: LocalKey,
    name: Stag,
    /// The mapping of the dmabuf from its start to the end of the region.
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
    /// Returns the STag of a region on a device, if the region is registered there.
    pub(crate) fn name(&self, device: u32, region: LocalKey) -> Option<Stag> {
        let mut known = self.0.iter();
        let found = known.find(|known| known.device == device && known.region == region);
        found.map(|found| found.name)
    }

    /// Returns the region that has this STag on a device.
    pub(crate) fn named(&self, device: u32, name: Stag) -> Option<(LocalKey, &Memory)> {
        let mut known = self.0.iter();
        let found = known.find(|known| known.device == device && known.name == name);
        found.map(|found| (found.region, &found.memory))
    }

    /// Removes the registrations of a region.
    pub(crate) fn clear(&mut self, region: LocalKey) {
        self.0.retain(|known| known.region != region);
    }
}

impl RegionTable {
    /// Registers a dmabuf with a simulated device, unless it is registered there.
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

/// Converts this side's STag of a region to the device's STag, or the device's to this side's.
pub(super) fn alias(device: Option<u32>, stag: Stag) -> Stag {
    device.map_or(stag, |device| {
        Stag(stag.0 ^ (ALIAS | device.wrapping_mul(ALIAS_SPREAD) & (ALIAS - 1)))
    })
}

/// The first STag that a device gives to a dmabuf. No region in a table has such an STag.
const FIRST_NAME: u32 = 1 << 30;
/// The bit that is set in every device STag for memory of this process, and in no other STag.
const ALIAS: u32 = 1 << 29;
/// A factor that spreads the STags, so that devices with small numbers use very different ones.
const ALIAS_SPREAD: u32 = 0x9e37_79b1;
