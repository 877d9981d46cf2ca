//! The functions and structs of `shim.c`.

use std::ffi::{c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};

/// DPDK's packet buffer.
#[repr(C)]
pub(crate) struct Mbuf {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A pool of packet buffers.
#[repr(C)]
pub(crate) struct Pool {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A device as its bus knows it.
#[repr(C)]
pub(crate) struct BusDevice {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Location of a packet's bytes, or of room for them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PacketBuffer {
    pub(crate) data: *mut u8,
    /// Bytes of the whole packet, which may continue in other segments.
    pub(crate) wire: u32,
    /// Bytes at `data`.
    pub(crate) length: u16,
}

#[repr(C)]
pub(crate) struct RawDevice {
    pub(crate) device: *mut BusDevice,
    pub(crate) pool: *mut Pool,
    pub(crate) port: u16,
    pub(crate) max_rx_queues: u16,
    pub(crate) max_tx_queues: u16,
    pub(crate) mtu: u16,
    pub(crate) room: u16,
    pub(crate) added: u8,
    pub(crate) rss: u8,
    pub(crate) started: u8,
    pub(crate) driver: [c_char; 61],
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawStats {
    pub(crate) received: u64,
    pub(crate) missed: u64,
    pub(crate) errors: u64,
    pub(crate) no_buffer: u64,
    pub(crate) sent: u64,
    pub(crate) send_errors: u64,
}

pub(crate) type Log = extern "C" fn(level: u32, text: *const c_char, length: usize);

pub(crate) type Fill = unsafe extern "C" fn(context: *mut c_void, data: *mut u8, size: u32);

#[allow(unsafe_code, reason = "declares the functions of shim.c as they are there")]
unsafe extern "C" {
    pub(crate) fn fg_init(argc: c_int, argv: *mut *mut c_char, log: Log) -> c_int;
    pub(crate) safe fn fg_version() -> *const c_char;
    pub(crate) fn fg_register_thread() -> c_int;
    pub(crate) fn fg_unregister_thread();
    pub(crate) fn fg_open(devargs: *const c_char, device: *mut RawDevice) -> c_int;
    pub(crate) fn fg_start(
        device: *mut RawDevice,
        rx: u16,
        tx: u16,
        descriptors: u16,
        step: *mut *const c_char,
    ) -> c_int;
    pub(crate) fn fg_close(device: *mut RawDevice);
    pub(crate) fn fg_stats(port: u16, stats: *mut RawStats) -> c_int;
    pub(crate) fn fg_waiting(port: u16, queue: u16) -> u32;
    pub(crate) fn fg_link(port: u16) -> c_int;
    pub(crate) fn fg_set_link(port: u16, up: c_int) -> c_int;
    pub(crate) fn fg_is_removed(port: u16) -> c_int;
    pub(crate) fn fg_receive(
        port: u16,
        queue: u16,
        mbufs: *mut *mut Mbuf,
        packets: *mut PacketBuffer,
        most: u16,
        plain: *mut *mut Pool,
    ) -> u16;
    pub(crate) fn fg_gather(mbuf: *const Mbuf, buffer: *mut u8, size: u32) -> u32;
    pub(crate) fn fg_free(mbufs: *mut *mut Mbuf, count: u16, plain: *mut Pool);
    pub(crate) fn fg_fill(pool: *mut Pool, fill: Fill, context: *mut c_void);
    pub(crate) fn fg_allocate(
        pool: *mut Pool,
        mbufs: *mut *mut Mbuf,
        packets: *mut PacketBuffer,
        count: u16,
    ) -> c_int;
    pub(crate) fn fg_append(mbuf: *mut Mbuf, more: *mut Mbuf, length: u16);
    pub(crate) fn fg_send(
        port: u16,
        queue: u16,
        mbufs: *mut *mut Mbuf,
        packets: *const PacketBuffer,
        count: u16,
    ) -> u16;
}
