//! Lists a host's RDMA devices, their network addresses, and the obstacles to their use, for
//! people.
//!
//! Invariant: the survey changes nothing. Facts that cannot be determined are left out.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::VerbsUnavailable;
use super::library::Library;
use super::raw;

/// The RDMA devices of this host and the conditions of their use.
#[derive(Debug)]
pub struct RdmaSurvey {
    /// The devices that the system's library can use.
    pub devices: Vec<Device>,
    /// The names of devices that the kernel has but the library has no provider for.
    pub without_provider: Vec<String>,
    /// True if connections can be established (`/dev/infiniband/rdma_cm` exists).
    pub has_connection_manager: bool,
    /// The number of bytes that this process may lock in memory; `None` if there is no limit.
    pub lock_bytes_max: Option<u64>,
}

/// An RDMA device of this host.
#[derive(Clone, Debug)]
pub struct Device {
    /// The name of the device, such as `mlx5_0`.
    pub name: String,
    /// True if the device uses iWARP, false if it uses InfiniBand's protocol.
    pub is_iwarp: bool,
    /// The ports of the device, in order of their numbers.
    pub ports: Vec<Port>,
}

/// One port of a device.
#[derive(Clone, Debug)]
pub struct Port {
    /// The number of the port, counted from 1.
    pub number: u8,
    /// The state of the port, in the kernel's words.
    pub state: String,
    /// True if the port is connected to an Ethernet network.
    pub is_ethernet: bool,
    /// The maximum number of payload bytes in a packet; `None` if it cannot be determined.
    pub mtu: Option<u32>,
    /// The network addresses of the port.
    pub gids: Vec<Gid>,
}

/// One network address (GID) of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The index of the address in the port's table.
    pub index: u16,
    /// The address itself, which has 128 bits.
    pub gid: Ipv6Addr,
    /// The type of the address, in the kernel's words: `IB/RoCE v1` or `RoCE v2`.
    pub kind: String,
    /// The name of the network interface of the address.
    pub interface: String,
}

impl Gid {
    /// Returns the address as an IP address, converted to IPv4 if it represents one.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.gid.to_ipv4_mapped().map_or(self.gid.into(), IpAddr::from)
    }
}

impl Port {
    /// Returns true if the port can be used now, according to the kernel.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.contains("ACTIVE")
    }
}

impl Device {
    /// Returns the name of the protocol of the port.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match (self.is_iwarp, self.ports.iter().any(|port| port.is_ethernet)) {
            (true, _) => "iWARP",
            (false, true) => "RoCE",
            (false, false) => "InfiniBand",
        }
    }
}

impl RdmaSurvey {
    /// Lists the devices of this host.
    ///
    /// # Errors
    /// [`VerbsUnavailable`] if the host has no RDMA libraries.
    pub fn take() -> Result<Self, VerbsUnavailable> {
        let library = Library::load()?;
        let devices = devices(&library);
        let has_provider = |name: &String| devices.iter().any(|device| device.name == *name);
        let of_kernel = entries(Path::new(CLASS));
        Ok(Self {
            without_provider: of_kernel.into_iter().filter(|name| !has_provider(name)).collect(),
            devices,
            has_connection_manager: Path::new("/dev/infiniband/rdma_cm").exists(),
            lock_bytes_max: lock_bytes_max(),
        })
    }
}

/// Returns the number of bytes that this process may lock in memory, or `None` if there is no
/// limit. Memory that is registered with a device is locked.
fn lock_bytes_max() -> Option<u64> {
    let is_privileged = rustix::process::geteuid().is_root();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    limit.filter(|_| !is_privileged)
}

fn devices(library: &Library) -> Vec<Device> {
    let mut count = 0;
    // SAFETY: the variable for the count lives during the call.
    let list = unsafe { (library.verbs.ibv_get_device_list)(&raw mut count) };
    if list.is_null() {
        return Vec::new();
    }
    let found = (0..usize::try_from(count).unwrap_or(0)).filter_map(|index| {
        // SAFETY: the list has `count` pointers to devices, which live as long as the list.
        let device = unsafe { *list.add(index) };
        // SAFETY: as above.
        let facts = unsafe { device.as_ref()? };
        let name = super::text(&facts.name);
        let mtus = mtus(library, device);
        let ports = mtus.iter().map(|(number, mtu)| port(&name, *number, *mtu)).collect();
        Some(Device { is_iwarp: facts.transport_type == raw::TRANSPORT_IWARP, ports, name })
    });
    let found = found.collect();
    // SAFETY: the list is freed once and not used afterwards.
    unsafe { (library.verbs.ibv_free_device_list)(list) };
    found
}

/// Returns the numbers of a device's ports, each with its packet size.
fn mtus(library: &Library, device: *mut raw::Device) -> Vec<(u8, Option<u32>)> {
    // SAFETY: the device belongs to a list that is alive.
    let context = unsafe { (library.verbs.ibv_open_device)(device) };
    if context.is_null() {
        return Vec::new();
    }
    // SAFETY: the structure has only integers, for which zeros are valid.
    let mut attributes: raw::DeviceAttributes = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open, and the attributes live during the call.
    let result = unsafe { (library.verbs.ibv_query_device)(context, &raw mut attributes) };
    let count = if result == 0 { attributes.port_count } else { 0 };
    let mtu = |number| {
        // SAFETY: as above.
        let mut port: raw::PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let result = unsafe { (library.verbs.ibv_query_port)(context, number, &raw mut port) };
        let code = u32::try_from(port.mtu_active).ok().filter(|code| (1..=5).contains(code));
        (number, code.filter(|_| result == 0).map(|code| 128 << code))
    };
    let found = (1..=count).map(mtu).collect();
    // SAFETY: the context is closed once and not used afterwards.
    unsafe { (library.verbs.ibv_close_device)(context) };
    found
}

/// Reads the kernel's files about a port.
fn port(device: &str, number: u8, mtu: Option<u32>) -> Port {
    let place = Path::new(CLASS).join(device).join("ports").join(number.to_string());
    Port {
        number,
        state: read(&place.join("state")).unwrap_or_default(),
        is_ethernet: read(&place.join("link_layer")).is_some_and(|layer| layer == "Ethernet"),
        mtu,
        gids: gids(&place),
    }
}

fn gids(port: &Path) -> Vec<Gid> {
    let attributes = port.join("gid_attrs");
    let mut found: Vec<Gid> = entries(&port.join("gids"))
        .into_iter()
        .filter_map(|entry| {
            let gid: Ipv6Addr = read(&port.join("gids").join(&entry))?.parse().ok()?;
            let kind = read(&attributes.join("types").join(&entry)).unwrap_or_default();
            let interface = read(&attributes.join("ndevs").join(&entry)).unwrap_or_default();
            let index = entry.parse().ok()?;
            (!gid.is_unspecified()).then_some(Gid { index, gid, kind, interface })
        })
        .collect();
    found.sort_by_key(|gid| gid.index);
    found
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn read(path: &PathBuf) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The directory in which the kernel lists its RDMA devices.
const CLASS: &str = "/sys/class/infiniband";
