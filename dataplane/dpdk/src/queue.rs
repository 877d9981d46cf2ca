//! Devices, opened by name and closed when the last of their parts is dropped, and packets in and
//! out of their queues.
#![allow(
    unsafe_code,
    reason = "reads and writes packet buffers of DPDK; this module holds who owns them when"
)]

use crate::control::{Control, Queues};
use crate::eal::{self, Eal};
use crate::error::Error;
use crate::ffi::{self, Fill, Mbuf, PacketBuffer, Pool};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::slice;
use std::sync::Arc;

/// Maximum number of packets in a batch: enough to hide the latency of memory, and few enough for
/// the first-level cache.
pub const BURST: usize = 64;

/// Number of bytes that are copied together of a packet in several segments. No header that a flow
/// key needs begins after them: sixteen headers of the greatest length (TRILL with options), an
/// IPv6 header, eight extension headers of the greatest length and two ports.
const REACH: usize = 14 + 16 * 144 + 40 + 8 * 256 * 8 + 4;

const NOTHING: PacketBuffer = PacketBuffer { data: null_mut(), length: 0, wire: 0 };

/// A receive queue with one owner.
pub struct ReceiveQueue {
    control: Arc<Control>,
    queue: u16,
    mbufs: Box<[*mut Mbuf; BURST]>,
    packets: Box<[PacketBuffer; BURST]>,
    gathered: Box<[u8]>,
}

// SAFETY: the buffers that the pointers lead to are held only within `burst`, by the thread that
// calls it.
unsafe impl Send for ReceiveQueue {}

/// Buffers that go back to their pool when this is dropped.
struct Received<'a> {
    mbufs: &'a mut [*mut Mbuf],
    /// Pool to which they can return unchanged.
    plain: *mut Pool,
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        // SAFETY: the driver handed these buffers over, and no reference to their bytes is left.
        unsafe { ffi::fg_free(self.mbufs.as_mut_ptr(), self.mbufs.len() as u16, self.plain) };
    }
}

impl ReceiveQueue {
    pub(crate) fn new(control: Arc<Control>, queue: u16) -> Self {
        ReceiveQueue {
            control,
            queue,
            mbufs: Box::new([null_mut(); BURST]),
            packets: Box::new([NOTHING; BURST]),
            gathered: vec![0; REACH].into(),
        }
    }

    /// Calls `each` for up to [`BURST`] waiting packets, with their bytes and their length on the
    /// wire, and returns their number. Never waits.
    ///
    /// A packet in several segments is passed up to the last byte that a header can need.
    #[inline]
    pub fn burst(&mut self, mut each: impl FnMut(&[u8], u32)) -> usize {
        eal::join();
        let Self { control, queue, mbufs, packets, gathered } = self;
        let mut plain = null_mut();
        // SAFETY: the device is started while `control` is there, and has this queue, which is ours
        // alone; both arrays have room for `BURST`.
        let count = unsafe {
            let (mbufs, packets) = (mbufs.as_mut_ptr(), packets.as_mut_ptr());
            ffi::fg_receive(control.port(), *queue, mbufs, packets, BURST as u16, &raw mut plain)
        } as usize;
        if count == 0 {
            return 0;
        }
        let received = Received { mbufs: &mut mbufs[..count], plain };
        for (&mbuf, packet) in received.mbufs.iter().zip(&packets[..count]) {
            // SAFETY: as many bytes as the segment holds, in a buffer that is ours until `received`
            // is dropped.
            let mut bytes =
                unsafe { slice::from_raw_parts(packet.data.cast_const(), packet.length as usize) };
            if u32::from(packet.length) < packet.wire {
                bytes = gather(mbuf, gathered);
            }
            each(bytes, packet.wire);
        }
        count
    }
}

/// Returns the beginning of a packet in several segments.
#[cold]
fn gather(mbuf: *const Mbuf, buffer: &mut [u8]) -> &[u8] {
    // SAFETY: a received buffer that was not freed; the other one takes as many bytes as is said.
    let length = unsafe { ffi::fg_gather(mbuf, buffer.as_mut_ptr(), buffer.len() as u32) } as usize;
    &buffer[..length]
}

/// A send queue with one owner.
///
/// Packets are [pushed](Self::push) into a batch and given to the device by [`flush`](Self::flush).
pub struct SendQueue {
    control: Arc<Control>,
    queue: u16,
    mbufs: Box<[*mut Mbuf; BURST]>,
    packets: Box<[PacketBuffer; BURST]>,
    /// Buffers in the arrays.
    allocated: usize,
    /// Number of buffers, at the front, that contain a packet.
    ready: usize,
}

// SAFETY: the buffers that the pointers lead to are this queue's own.
unsafe impl Send for SendQueue {}

impl SendQueue {
    pub(crate) fn new(control: Arc<Control>, queue: u16) -> Self {
        let (mbufs, packets) = (Box::new([null_mut(); BURST]), Box::new([NOTHING; BURST]));
        SendQueue { control, queue, mbufs, packets, allocated: 0, ready: 0 }
    }

    /// Adds a packet to the batch. `fill` writes it to the beginning of a buffer of 2,048 bytes or
    /// more with undefined contents, and returns its length. Returns `false`, and adds nothing, if
    /// the batch is full ([`BURST`] packets) or no buffer is free until the device has sent.
    #[inline]
    pub fn push(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if self.ready == self.allocated && !self.allocate() {
            return false;
        }
        let packet = &mut self.packets[self.ready];
        // SAFETY: a buffer of ours with room for as many bytes. Its memory is the kernel's zeros or
        // what was written since.
        let length =
            fill(unsafe { slice::from_raw_parts_mut(packet.data, packet.length as usize) });
        packet.length = packet.length.min(u16::try_from(length).unwrap_or(u16::MAX));
        packet.wire = packet.length.into();
        self.ready += 1;
        true
    }

    /// Adds a packet in several segments of memory, at most 32, as some devices deliver and send
    /// them. Otherwise like [`push`](Self::push).
    pub fn push_segments(&mut self, segments: &[&[u8]]) -> bool {
        let Some((first, more)) = segments.split_first() else { return false };
        let mut tail = [null_mut(); 32];
        let mut rooms = [NOTHING; 32];
        if more.len() >= tail.len() || self.ready == self.allocated && !self.allocate() {
            return false;
        }
        let fits = |packet: &PacketBuffer, bytes: &[u8]| bytes.len() <= packet.length as usize;
        // SAFETY: the pool is there while `control` is; the arrays have room for as many.
        let code = unsafe {
            ffi::fg_allocate(
                self.control.pool(),
                tail.as_mut_ptr(),
                rooms.as_mut_ptr(),
                more.len() as u16,
            )
        };
        if code < 0 {
            return false;
        }
        if !fits(&self.packets[self.ready], first)
            || !more.iter().zip(&rooms).all(|(bytes, room)| fits(room, bytes))
        {
            // SAFETY: buffers of ours that nothing refers to.
            unsafe { ffi::fg_free(tail.as_mut_ptr(), more.len() as u16, null_mut()) };
            return false;
        }
        let pushed = self.push(|buffer| {
            buffer[..first.len()].copy_from_slice(first);
            first.len()
        });
        let head = self.ready - 1;
        for ((segment, mbuf), room) in more.iter().zip(tail).zip(rooms) {
            // SAFETY: a buffer of ours with room for these bytes; it becomes part of the packet,
            // which is ours as well.
            unsafe {
                room.data.copy_from_nonoverlapping(segment.as_ptr(), segment.len());
                ffi::fg_append(self.mbufs[head], mbuf, segment.len() as u16);
            }
            self.packets[head].wire += segment.len() as u32;
        }
        pushed
    }

    /// Offers the batch to the device and returns the number of packets that it took. The others
    /// stay in the batch, in order.
    #[inline]
    pub fn flush(&mut self) -> usize {
        if self.ready == 0 {
            return 0;
        }
        eal::join();
        // SAFETY: the device is started while `control` is there, and has this queue, which is ours
        // alone; as many buffers hold packets. What the device takes is its own.
        let sent = unsafe {
            let (mbufs, packets) = (self.mbufs.as_mut_ptr(), self.packets.as_ptr());
            ffi::fg_send(self.control.port(), self.queue, mbufs, packets, self.ready as u16)
        } as usize;
        self.mbufs.copy_within(sent..self.allocated, 0);
        self.packets.copy_within(sent..self.allocated, 0);
        self.allocated -= sent;
        self.ready -= sent;
        sent
    }

    /// Packets in the batch.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ready
    }

    /// Fills the arrays with empty buffers.
    #[cold]
    fn allocate(&mut self) -> bool {
        eal::join();
        let (mbufs, packets) =
            (&mut self.mbufs[self.allocated..], &mut self.packets[self.allocated..]);
        let wanted = mbufs.len();
        // SAFETY: the pool is there while `control` is; both slices have room for as many.
        let code = unsafe {
            ffi::fg_allocate(
                self.control.pool(),
                mbufs.as_mut_ptr(),
                packets.as_mut_ptr(),
                wanted as u16,
            )
        };
        if wanted > 0 && code == 0 {
            self.allocated = BURST;
        }
        self.ready < self.allocated
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        // SAFETY: buffers of ours that nothing refers to.
        unsafe { ffi::fg_free(self.mbufs.as_mut_ptr(), self.allocated as u16, null_mut()) };
    }
}

/// An open device.
pub struct Device {
    /// Handle for operations on the whole device.
    pub control: Arc<Control>,
    /// Requested receive queues.
    pub receive: Vec<ReceiveQueue>,
    /// Requested send queues.
    pub send: Vec<SendQueue>,
}

impl Device {
    /// Opens a device and starts it. `devargs` is a bus address or a software device's name, with
    /// options behind commas: `0000:03:00.0`, `net_pcap0,rx_pcap=trace.pcap`. The device also
    /// receives packets that are addressed to others.
    ///
    /// # Errors
    /// [`Error::Device`] with DPDK's message, [`Error::Queues`] if it has fewer queues,
    /// [`Error::InUse`] if this process has already opened it.
    pub fn open(_: &Eal, devargs: &str, queues: Queues) -> Result<Device, Error> {
        let control = Arc::new(Control::open(devargs, queues)?);
        Ok(Device {
            receive: (0..queues.receive)
                .map(|queue| ReceiveQueue::new(Arc::clone(&control), queue))
                .collect(),
            send: (0..queues.send)
                .map(|queue| SendQueue::new(Arc::clone(&control), queue))
                .collect(),
            control,
        })
    }

    /// Calls `fill` once for every free buffer. A device that delivers buffers unchanged, such as
    /// `net_null`, then delivers these bytes: for measurements.
    pub fn fill_buffers(&mut self, mut fill: impl FnMut(&mut [u8])) {
        unsafe extern "C" fn call<F: FnMut(&mut [u8])>(
            context: *mut c_void,
            data: *mut u8,
            size: u32,
        ) {
            // SAFETY: `context` is the closure below, which is borrowed by this call only; `data` is a
            // free buffer of this size, and all of it was initialised, at least by the kernel.
            unsafe { (*context.cast::<F>())(slice::from_raw_parts_mut(data, size as usize)) }
        }
        fn caller<F: FnMut(&mut [u8])>(_: &F) -> Fill {
            call::<F>
        }
        let call = caller(&fill);
        // SAFETY: the pool is there while the device is; `call` and `context` belong together.
        unsafe { ffi::fg_fill(self.control.pool(), call, (&raw mut fill).cast()) };
    }
}
