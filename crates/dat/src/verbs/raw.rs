//! Bindings of libibverbs and librdmacm: types, constants and functions of `infiniband/verbs.h` and
//! `rdma/rdma_cma.h`. The functions are looked up by name in the loaded libraries.
//!
//! Invariant: layouts and signatures are those of rdma-core, whose binary interface has not changed
//! since `libibverbs.so.1` and `librdmacm.so.1`. `tests/verbs/layout.rs` checks them with a C
//! compiler if there is one. Structures that only the libraries create are declared up to the last
//! field in use.

use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;

use super::VerbsUnavailable;

/// The layout of the C `struct ibv_device`.
#[repr(C)]
pub struct Device {
    pub operations: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// Values of the C `enum ibv_transport_type`.
pub const TRANSPORT_IWARP: c_int = 1;

/// The layout of the C `struct ibv_context`, up to its operations.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub operations: ContextOperations,
    pub command_fd: c_int,
    pub async_fd: c_int,
}

/// The layout of the C `struct ibv_context_ops`: the functions of the data path.
#[repr(C)]
pub struct ContextOperations {
    pub before_poll: [*const c_void; 11],
    pub poll_cq: PollCq,
    pub request_notify_cq: RequestNotifyCq,
    pub before_post: [*const c_void; 12],
    pub post_send: PostSend,
    pub post_receive: PostReceive,
    pub behind_post: [*const c_void; 5],
}

pub type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int;
pub type RequestNotifyCq = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int;
pub type PostReceive =
    unsafe extern "C" fn(*mut Qp, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int;

/// The layout of the C `struct ibv_pd`.
#[repr(C)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

/// The layout of the C `struct ibv_mr`.
#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub address: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// The layout of the C `struct ibv_comp_channel`.
#[repr(C)]
pub struct CompletionChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub reference_count: c_int,
}

/// The layout of the C `struct ibv_cq`, up to the last field in use.
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompletionChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub entries: c_int,
}

/// The layout of the C `struct ibv_qp`, up to the last field in use.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub receive_cq: *mut Cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub number: u32,
    pub state: c_int,
    pub kind: c_int,
}

/// The layout of the C `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCapacity {
    pub send_requests_max: u32,
    pub receive_requests_max: u32,
    pub send_sge_max: u32,
    pub receive_sge_max: u32,
    pub inline_bytes_max: u32,
}

/// The layout of the C `struct ibv_qp_init_attr`.
#[repr(C)]
pub struct QpAttributes {
    pub context: *mut c_void,
    pub send_cq: *mut Cq,
    pub receive_cq: *mut Cq,
    pub srq: *mut c_void,
    pub capacity: QpCapacity,
    pub kind: c_int,
    pub signals_all: c_int,
}

/// `IBV_QPT_RC`: the type of a reliable connected queue pair.
pub const QP_RELIABLE: c_int = 2;

/// The layout of the C `struct ibv_qp_attr`, of which only the state is used; this type is larger
/// than the original.
#[repr(C)]
pub struct QpState {
    pub state: c_int,
    pub unused: [c_int; 63],
}

/// `IBV_QPS_ERR`: the error state, in which a queue pair executes no work.
pub const QP_ERROR: c_int = 6;
/// `IBV_QP_STATE`: the bit of the mask that selects the state.
pub const QP_STATE: c_int = 1;

/// The layout of the C `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Sge {
    pub address: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The layout of the C `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendRequest {
    pub id: u64,
    pub next: *mut SendRequest,
    pub sges: *mut Sge,
    pub sge_count: c_int,
    pub opcode: c_int,
    pub flags: u32,
    /// The immediate data (in network byte order) or the rkey to invalidate.
    pub immediate: u32,
    pub remote_address: u64,
    pub rkey: u32,
    pub unused: [u32; 5],
    pub unused_xrc: u64,
    pub unused_bind: [u64; 6],
}

/// Values of the C `enum ibv_wr_opcode`.
pub mod opcode {
    use std::ffi::c_int;
    pub const RDMA_WRITE: c_int = 0;
    pub const SEND: c_int = 2;
    pub const SEND_WITH_IMMEDIATE: c_int = 3;
    pub const RDMA_READ: c_int = 4;
    pub const SEND_WITH_INVALIDATE: c_int = 9;
}

/// Values of the C `enum ibv_send_flags`.
pub mod send_flag {
    pub const FENCE: u32 = 1;
    pub const SIGNALED: u32 = 2;
    pub const INLINE: u32 = 8;
}

/// The layout of the C `struct ibv_recv_wr`.
#[repr(C)]
pub struct ReceiveRequest {
    pub id: u64,
    pub next: *mut ReceiveRequest,
    pub sges: *mut Sge,
    pub sge_count: c_int,
}

/// The layout of the C `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct WorkCompletion {
    pub id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_error: u32,
    pub length: u32,
    /// The immediate data (in network byte order) or the invalidated rkey.
    pub immediate: u32,
    pub qp_number: u32,
    pub source_qp: u32,
    pub flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// Values of the C `enum ibv_wc_flags`.
pub const COMPLETION_WITH_IMMEDIATE: u32 = 1 << 1;
pub const COMPLETION_WITH_INVALIDATE: u32 = 1 << 3;

/// Values of the C `enum ibv_wc_status`.
pub mod status {
    use std::ffi::c_int;
    pub const SUCCESS: c_int = 0;
    pub const LOCAL_LENGTH: c_int = 1;
    pub const FLUSHED: c_int = 5;
    pub const REMOTE_INVALID_REQUEST: c_int = 9;
    pub const REMOTE_ACCESS: c_int = 10;
    pub const REMOTE_OPERATION: c_int = 11;
    pub const RETRIES_EXCEEDED: c_int = 12;
    pub const RECEIVER_NOT_READY: c_int = 13;
}

/// Values of the C `enum ibv_access_flags`.
pub mod access {
    use std::ffi::c_int;
    pub const LOCAL_WRITE: c_int = 1;
    pub const REMOTE_WRITE: c_int = 2;
    pub const REMOTE_READ: c_int = 4;
    pub const ON_DEMAND: c_int = 64;
}

/// The layout of the C `struct ibv_device_attr`.
#[repr(C)]
pub struct DeviceAttributes {
    pub firmware: [c_char; 64],
    pub node_guid: u64,
    pub system_image_guid: u64,
    pub mr_bytes_max: u64,
    pub page_sizes: u64,
    pub vendor: u32,
    pub vendor_part: u32,
    pub hardware_version: u32,
    pub qps_max: c_int,
    pub qp_requests_max: c_int,
    pub capabilities: u32,
    pub sge_max: c_int,
    pub read_sge_max: c_int,
    pub cqs_max: c_int,
    pub cq_entries_max: c_int,
    pub mrs_max: c_int,
    pub pds_max: c_int,
    pub qp_reads_max: c_int,
    pub ee_reads_max: c_int,
    pub responder_resources_max: c_int,
    pub qp_initiator_reads_max: c_int,
    pub unused: [c_int; 16],
    pub pkeys_max: u16,
    pub acknowledge_delay: u8,
    pub port_count: u8,
}

/// The layout of the C `struct ibv_port_attr`.
#[repr(C)]
pub struct PortAttributes {
    pub state: c_int,
    pub mtu_max: c_int,
    pub mtu_active: c_int,
    pub gid_count: c_int,
    pub capabilities: u32,
    pub message_bytes_max: u32,
    pub bad_pkeys: u32,
    pub qkey_violations: u32,
    pub pkey_count: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub vl_count_max: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub physical_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub more_capabilities: u16,
}

/// The layout of the C `struct rdma_event_channel`.
#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

/// The layout of the C `struct rdma_cm_id`, up to the last field in use.
#[repr(C)]
pub struct CmId {
    pub context: *mut Context,
    pub channel: *mut EventChannel,
    pub user: *mut c_void,
    pub qp: *mut Qp,
    pub source: libc::sockaddr_storage,
    pub destination: libc::sockaddr_storage,
}

/// `RDMA_PS_TCP`: the port space of connected queue pairs.
pub const PORT_SPACE_TCP: c_int = 0x0106;

/// The layout of the C `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConnectionParameters {
    pub private_data: *const c_void,
    pub private_length: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub receiver_retry_count: u8,
    pub srq: u8,
    pub qp_number: u32,
}

/// The layout of the C `struct rdma_cm_event`, for events of a connection.
#[repr(C)]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listener: *mut CmId,
    pub event: c_int,
    pub status: c_int,
    pub parameters: ConnectionParameters,
}

/// Values of the C `enum rdma_cm_event_type`.
pub mod event {
    use std::ffi::c_int;
    pub const ADDRESS_RESOLVED: c_int = 0;
    pub const ADDRESS_ERROR: c_int = 1;
    pub const ROUTE_RESOLVED: c_int = 2;
    pub const ROUTE_ERROR: c_int = 3;
    pub const CONNECT_REQUEST: c_int = 4;
    pub const CONNECT_ERROR: c_int = 6;
    pub const UNREACHABLE: c_int = 7;
    pub const REJECTED: c_int = 8;
    pub const ESTABLISHED: c_int = 9;
    pub const DISCONNECTED: c_int = 10;
    pub const DEVICE_REMOVAL: c_int = 11;
}

/// `IBV_EVENT_COMM_EST`: a message arrived before the connection was reported.
pub const COMMUNICATION_ESTABLISHED: c_int = 4;
/// `IB_CM_REJ_CONSUMER_DEFINED`: the application rejected the connection.
pub const REJECTED_BY_CONSUMER: c_int = 28;

macro_rules! functions {
    (
        $what:ident, $file:literal, $package:literal:
        $($name:ident($($argument:ty),* $(,)?) $(-> $result:ty)?;)*
    ) => {
        /// The functions of one library that this provider uses.
        pub struct $what {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// The loaded library, which is never closed, so that pointers into it stay valid.
            _library: ManuallyDrop<libloading::Library>,
        }

        impl $what {
            /// Loads the library and looks up all functions.
            pub fn load() -> Result<Self, VerbsUnavailable> {
                let (file, package) = ($file, $package);
                // SAFETY: loading runs only code of the system's library, which looks for devices.
                let library = unsafe { libloading::Library::new(file) }
                    .map_err(|source| {
                        VerbsUnavailable::Missing { file, package, source: source.into() }
                    })?;
                let library = ManuallyDrop::new(library);
                $(
                    let function = stringify!($name);
                    // SAFETY: the signature is the library's (this module's invariant).
                    let $name = *unsafe { library.get(function) }
                        .map_err(|source| {
                            VerbsUnavailable::TooOld { file, function, source: source.into() }
                        })?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    Verbs, "libibverbs.so.1", "ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)":
    ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list(*mut *mut Device);
    ibv_open_device(*mut Device) -> *mut Context;
    ibv_close_device(*mut Context) -> c_int;
    ibv_query_device(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port(*mut Context, u8, *mut PortAttributes) -> c_int;
    ibv_alloc_pd(*mut Context) -> *mut Pd;
    ibv_dealloc_pd(*mut Pd) -> c_int;
    ibv_reg_mr(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    ibv_dereg_mr(*mut Mr) -> c_int;
    ibv_modify_qp(*mut Qp, *const QpState, c_int) -> c_int;
    ibv_create_comp_channel(*mut Context) -> *mut CompletionChannel;
    ibv_destroy_comp_channel(*mut CompletionChannel) -> c_int;
    ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
    ibv_destroy_cq(*mut Cq) -> c_int;
    ibv_get_cq_event(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut Cq, u32);
}

functions! {
    Manager, "librdmacm.so.1", "librdmacm1 (Debian, Ubuntu) or librdmacm (Fedora, RHEL)":
    rdma_get_devices(*mut c_int) -> *mut *mut Context;
    rdma_free_devices(*mut *mut Context);
    rdma_create_event_channel() -> *mut EventChannel;
    rdma_destroy_event_channel(*mut EventChannel);
    rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_int) -> c_int;
    rdma_destroy_id(*mut CmId) -> c_int;
    rdma_bind_addr(*mut CmId, *const libc::sockaddr) -> c_int;
    rdma_listen(*mut CmId, c_int) -> c_int;
    rdma_resolve_addr(*mut CmId, *const libc::sockaddr, *const libc::sockaddr, c_int) -> c_int;
    rdma_resolve_route(*mut CmId, c_int) -> c_int;
    rdma_create_qp(*mut CmId, *mut Pd, *mut QpAttributes) -> c_int;
    rdma_destroy_qp(*mut CmId);
    rdma_connect(*mut CmId, *mut ConnectionParameters) -> c_int;
    rdma_accept(*mut CmId, *mut ConnectionParameters) -> c_int;
    rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
    rdma_notify(*mut CmId, c_int) -> c_int;
    rdma_disconnect(*mut CmId) -> c_int;
    rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
    rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    rdma_ack_cm_event(*mut CmEvent) -> c_int;
    rdma_get_src_port(*mut CmId) -> u16;
}

/// The type of `ibv_reg_dmabuf_mr`: protection domain, offset, length, address, descriptor, access.
pub type RegisterDmabuf = unsafe extern "C" fn(*mut Pd, u64, usize, u64, c_int, c_int) -> *mut Mr;

impl Verbs {
    /// Returns the function that registers dmabufs. rdma-core has it since version 34.
    pub fn register_dmabuf(&self) -> Option<RegisterDmabuf> {
        // SAFETY: the signature is the library's (this module's invariant).
        let found = unsafe { self._library.get::<RegisterDmabuf>("ibv_reg_dmabuf_mr") };
        found.ok().map(|function| *function)
    }
}

/// The name of a structure, its size, and the offsets of its fields.
pub type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

/// Returns the layout of every structure, with the fields in use.
#[must_use]
pub fn layouts() -> Vec<Layout> {
    use std::mem::offset_of;
    macro_rules! layout {
        ($name:literal, $kind:ty, $($field:literal $member:ident),*) => {
            ($name, size_of::<$kind>(), vec![$(($field, offset_of!($kind, $member))),*])
        };
    }
    vec![
        layout!("ibv_device", Device, "node_type" node_type, "transport_type" transport_type,
            "name" name, "ibdev_path" ibdev_path),
        layout!("ibv_context", Context, "device" device, "ops" operations, "cmd_fd" command_fd,
            "async_fd" async_fd),
        layout!("ibv_context_ops", ContextOperations, "poll_cq" poll_cq,
            "req_notify_cq" request_notify_cq, "post_send" post_send, "post_recv" post_receive),
        layout!("ibv_pd", Pd, "context" context),
        layout!("ibv_mr", Mr, "addr" address, "length" length, "lkey" lkey, "rkey" rkey),
        layout!("ibv_comp_channel", CompletionChannel, "fd" fd),
        layout!("ibv_cq", Cq, "channel" channel, "cqe" entries),
        layout!("ibv_qp", Qp, "qp_num" number, "state" state, "qp_type" kind),
        layout!("ibv_qp_cap", QpCapacity, "max_inline_data" inline_bytes_max),
        layout!("ibv_qp_init_attr", QpAttributes, "cap" capacity, "qp_type" kind,
            "sq_sig_all" signals_all),
        layout!("ibv_sge", Sge, "addr" address, "length" length, "lkey" lkey),
        layout!("ibv_send_wr", SendRequest, "sg_list" sges, "num_sge" sge_count,
            "opcode" opcode, "send_flags" flags, "imm_data" immediate,
            "wr.rdma.remote_addr" remote_address, "wr.rdma.rkey" rkey,
            "bind_mw" unused_bind),
        layout!("ibv_recv_wr", ReceiveRequest, "sg_list" sges, "num_sge" sge_count),
        layout!("ibv_wc", WorkCompletion, "status" status, "opcode" opcode, "byte_len" length,
            "imm_data" immediate, "wc_flags" flags),
        layout!("ibv_device_attr", DeviceAttributes, "max_qp_wr" qp_requests_max,
            "device_cap_flags" capabilities, "max_sge" sge_max, "max_sge_rd" read_sge_max,
            "max_cqe" cq_entries_max, "max_qp_rd_atom" qp_reads_max,
            "max_qp_init_rd_atom" qp_initiator_reads_max, "phys_port_cnt" port_count),
        layout!("ibv_port_attr", PortAttributes, "active_mtu" mtu_active,
            "link_layer" link_layer),
        layout!("rdma_event_channel", EventChannel, "fd" fd),
        layout!("rdma_cm_id", CmId, "verbs" context, "channel" channel, "qp" qp,
            "route.addr.src_addr" source, "route.addr.dst_addr" destination),
        layout!("rdma_conn_param", ConnectionParameters, "private_data_len" private_length,
            "responder_resources" responder_resources, "initiator_depth" initiator_depth,
            "rnr_retry_count" receiver_retry_count, "qp_num" qp_number),
        layout!("rdma_cm_event", CmEvent, "event" event, "status" status,
            "param.conn" parameters),
    ]
}

/// The structures of which only the beginning is declared.
pub const PREFIXES: [&str; 5] = ["ibv_context", "ibv_cq", "ibv_qp", "rdma_cm_id", "rdma_cm_event"];
