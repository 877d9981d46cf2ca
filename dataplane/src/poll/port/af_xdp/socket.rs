//! One AF_XDP socket: its frames, and the rings it shares with the kernel.
#![allow(
    unsafe_code,
    reason = "memory shared with the kernel; this module keeps apart what each side owns"
)]

use super::description::Copies;
use crate::poll::port::{AHEAD, prefetch};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, socket_error, xdp_mmap_offsets, xdp_options,
    xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
    XdpOptionsFlags, XdpRingFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Options of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketConfig {
    /// Number of frames, and of entries of every ring: a power of two. With as many entries as
    /// frames no ring overflows.
    pub(super) frames: u32,
    /// Size of a frame in bytes, 2048 or 4096.
    pub(super) frame_size: u32,
    pub(super) copies: Copies,
    /// Whether packets larger than a frame are received in several pieces.
    pub(super) pieces: bool,
    pub(super) task: SocketDirection,
}

/// Direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketDirection {
    Receive,
    Send,
}

/// Handle of an open socket, for statistics and options.
#[derive(Clone)]
pub(super) struct Handle(Arc<OwnedFd>);

/// Packets lost by a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SocketLosses {
    /// Packets for which no frame or no ring entry was free.
    pub(super) packets: u64,
    /// The part of `packets` for which no frame was free.
    pub(super) no_frame: u64,
    /// The part of `packets` that was larger than a frame.
    pub(super) too_large: u64,
    /// Descriptors that the kernel rejected: a bug of this program.
    pub(super) invalid: u64,
}

impl Handle {
    /// Reads the losses; `pieces`: whether packets larger than a frame are received in pieces.
    pub(super) fn lost(&self, pieces: bool) -> io::Result<SocketLosses> {
        let statistics = xdp_statistics(&*self.0)?;
        let (dropped, no_frame) = (statistics.rx_dropped, statistics.rx_fill_ring_empty_descs);
        Ok(SocketLosses {
            packets: dropped + statistics.rx_ring_full.unwrap_or(0),
            no_frame: no_frame.unwrap_or(0),
            // The kernel drops for two reasons and counts one of them separately.
            too_large: no_frame
                .filter(|_| !pieces)
                .map_or(0, |no_frame| dropped.saturating_sub(no_frame)),
            invalid: statistics.rx_invalid_descs + statistics.tx_invalid_descs,
        })
    }

    /// Returns the packets in the receive ring, of `entries` entries, that the worker has not taken
    /// yet.
    pub(super) fn waiting(&self, entries: u32) -> io::Result<u32> {
        let offsets = xdp_mmap_offsets(&*self.0)?;
        let ring = Ring::<XdpDesc>::new(&self.0, XDP_PGOFF_RX_RING, &offsets.rx, entries)?;
        // SAFETY: within the mapped ring and aligned; both sides only load and store them whole.
        // Read first, so that no packet is missed.
        let consumed = unsafe { ring.consumer.as_ref() }.load(Ordering::Acquire);
        // SAFETY: as above.
        let produced = unsafe { ring.producer.as_ref() }.load(Ordering::Acquire);
        Ok(produced.wrapping_sub(consumed))
    }

    /// Returns whether the kernel has disconnected the socket, since its interface left the network
    /// namespace. It stays disconnected if the interface is back. True only once.
    pub(super) fn is_newly_disconnected(&self) -> bool {
        matches!(socket_error(&*self.0), Ok(Err(Errno::NETDOWN)))
    }

    /// Returns whether the driver writes packets directly into the frames.
    pub(super) fn is_zero_copy(&self) -> bool {
        xdp_options(&*self.0)
            .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Lets the worker poll the driver itself instead of waiting for interrupts.
    pub(super) fn prefer_busy_poll(&self, microseconds: i32, budget: i32) -> io::Result<()> {
        for (option, value) in [
            (libc::SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, microseconds),
            (libc::SO_BUSY_POLL_BUDGET, budget),
        ] {
            let length = size_of_val(&value) as libc::socklen_t;
            // SAFETY: the kernel reads the four bytes of `value`.
            let answer = unsafe {
                libc::setsockopt(
                    self.0.as_raw_fd(),
                    libc::SOL_SOCKET,
                    option,
                    (&raw const value).cast(),
                    length,
                )
            };
            if answer != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A memory mapping, unmapped on drop.
struct Pages {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and has this one owner.
unsafe impl Send for Pages {}

impl Pages {
    fn anonymous(length: usize) -> rustix::io::Result<Self> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no memory in use.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, access, flags) }?;
        // SAFETY: the whole of a mapping that is not in use yet. A hint that saves TLB misses;
        // failure is harmless.
        let _ = unsafe { madvise(start, length, Advice::LinuxHugepage) };
        NonNull::new(start).map(|start| Pages { start, length }).ok_or(Errno::NOMEM)
    }

    fn of(socket: &OwnedFd, offset: u64, length: usize) -> rustix::io::Result<Self> {
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: as for `anonymous`: the kernel chooses the address.
        let start = unsafe { mmap(std::ptr::null_mut(), length, access, flags, socket, offset) }?;
        NonNull::new(start).map(|start| Pages { start, length }).ok_or(Errno::NOMEM)
    }

    fn at<T>(&self, offset: u64) -> NonNull<T> {
        assert!(offset as usize + size_of::<T>() <= self.length, "beyond the mapping");
        // SAFETY: within the mapping, as checked above.
        unsafe { self.start.byte_add(offset as usize).cast() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this address and length, and no borrow of it exists
        // any more.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}

/// A ring with one producer and one consumer, one of them the kernel and the other this process.
struct Ring<T> {
    _pages: Pages,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    mask: u32,
    /// This process's position: consumer of a ring that the kernel fills, producer of one that it
    /// empties.
    own: u32,
}

// SAFETY: its pointers lead into `_pages`, which it owns and which are not bound to a thread.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(
        socket: &OwnedFd,
        page_offset: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> rustix::io::Result<Self> {
        let pages = Pages::of(
            socket,
            page_offset,
            offsets.desc as usize + entries as usize * size_of::<T>(),
        )?;
        Ok(Ring {
            producer: pages.at(offsets.producer),
            consumer: pages.at(offsets.consumer),
            flags: offsets.flags.map(|offset| pages.at(offset)),
            entries: pages.at(offsets.desc),
            mask: entries - 1,
            own: 0,
            _pages: pages,
        })
    }

    /// Returns the entries produced by the kernel and not consumed yet.
    #[inline(always)]
    fn ready(&self) -> u32 {
        // SAFETY: within the mapped ring and aligned; both sides only load and store it whole.
        unsafe { self.producer.as_ref() }.load(Ordering::Acquire).wrapping_sub(self.own)
    }

    /// Returns the entries produced by this process and not consumed by the kernel yet.
    fn unconsumed(&self) -> u32 {
        // SAFETY: as above.
        self.own.wrapping_sub(unsafe { self.consumer.as_ref() }.load(Ordering::Acquire))
    }

    /// Returns the entry `ahead` of our position. It must be ready.
    #[inline(always)]
    fn read(&self, ahead: u32) -> T {
        // SAFETY: masked, hence within the ring. The kernel wrote it before it moved the producer,
        // and overwrites it only after this process has moved the consumer. Any bit pattern is a
        // valid entry.
        unsafe { self.entries.add((self.own.wrapping_add(ahead) & self.mask) as usize).read() }
    }

    /// Writes the entry `ahead` of our position. It must be free.
    #[inline(always)]
    fn write(&mut self, ahead: u32, entry: T) {
        // SAFETY: masked, hence within the ring. The kernel reads it only once this process has
        // moved the producer.
        unsafe {
            self.entries.add((self.own.wrapping_add(ahead) & self.mask) as usize).write(entry)
        };
    }

    #[inline(always)]
    fn consume(&mut self, entries: u32) {
        self.own = self.own.wrapping_add(entries);
        // SAFETY: within the mapped ring and aligned.
        unsafe { self.consumer.as_ref() }.store(self.own, Ordering::Release);
    }

    #[inline(always)]
    fn produce(&mut self, entries: u32) {
        self.own = self.own.wrapping_add(entries);
        // SAFETY: as above.
        unsafe { self.producer.as_ref() }.store(self.own, Ordering::Release);
    }

    /// Returns whether the kernel must be notified of new entries.
    #[inline(always)]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        let flags = self.flags.map_or(0, |flags| unsafe { flags.as_ref() }.load(Ordering::Relaxed));
        flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// The frames of a socket, and the rings in which it exchanges them with the kernel.
///
/// This process owns a frame while its number is in no ring other than the one it consumes. The
/// kernel writes to the pages that backed the frames when the socket was opened, whatever becomes
/// of their mapping: after this is dropped, it cannot overwrite other memory mapped at that
/// address.
pub(super) struct Socket {
    descriptor: Handle,
    rings: Rings,
    frames: Pages,
    frame_size: u32,
}

enum Rings {
    Receive { filled: Ring<XdpDesc>, free: Ring<u64> },
    Send { queued: Ring<XdpDesc>, sent: Ring<u64>, unused: Vec<u64> },
}

impl Socket {
    /// Opens a socket on a queue of an interface.
    pub(super) fn open(interface: u32, queue: u32, config: &SocketConfig) -> io::Result<Self> {
        let SocketConfig { frames, frame_size, copies, pieces, task } = *config;
        let descriptor =
            socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let length = frames as usize * frame_size as usize;
        let memory = Pages::anonymous(length)?;
        let area = XdpUmemReg {
            addr: memory.start.as_ptr() as u64,
            len: length as u64,
            chunk_size: frame_size,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&descriptor, area)?;
        set_xdp_umem_fill_ring_size(&descriptor, frames)?;
        set_xdp_umem_completion_ring_size(&descriptor, frames)?;
        match task {
            SocketDirection::Receive => set_xdp_rx_ring_size(&descriptor, frames)?,
            SocketDirection::Send => set_xdp_tx_ring_size(&descriptor, frames)?,
        }
        let offsets = xdp_mmap_offsets(&descriptor)?;
        let numbers = (0..u64::from(frames)).map(|frame| frame * u64::from(frame_size));
        let rings = match task {
            SocketDirection::Receive => {
                let filled = Ring::new(&descriptor, XDP_PGOFF_RX_RING, &offsets.rx, frames)?;
                let mut free =
                    Ring::new(&descriptor, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, frames)?;
                numbers.zip(0..).for_each(|(frame, ahead)| free.write(ahead, frame));
                free.produce(frames);
                Rings::Receive { filled, free }
            }
            SocketDirection::Send => {
                let queued = Ring::new(&descriptor, XDP_PGOFF_TX_RING, &offsets.tx, frames)?;
                let sent =
                    Ring::new(&descriptor, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, frames)?;
                Rings::Send { queued, sent, unused: numbers.collect() }
            }
        };
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        match copies {
            Copies::ZeroCopy => flags |= SocketAddrXdpFlags::XDP_ZEROCOPY,
            Copies::Copy => flags |= SocketAddrXdpFlags::XDP_COPY,
            Copies::Auto => {}
        }
        if pieces {
            flags |= SocketAddrXdpFlags::XDP_USE_SG;
        }
        bind(&descriptor, &SocketAddrXdp::new(flags, interface, queue))?;
        Ok(Socket { descriptor: Handle(Arc::new(descriptor)), rings, frames: memory, frame_size })
    }

    pub(super) fn handle(&self) -> Handle {
        self.descriptor.clone()
    }

    /// Passes up to `most` received packets to `sink`, with their lengths on the wire; of a packet
    /// in pieces, the first piece. Returns the number of packets.
    #[inline(always)]
    pub(super) fn receive(&mut self, most: u32, mut sink: impl FnMut(&[u8], u32)) -> u32 {
        let Rings::Receive { filled, free } = &mut self.rings else { return 0 };
        let ready = filled.ready();
        if ready == 0 {
            return 0;
        }
        let frame_of = !u64::from(self.frame_size - 1);
        // The free ring has an entry for every frame, so returned frames always fit.
        let (mut packets, mut taken) = (0, 0);
        while taken < ready && packets < most {
            let first = filled.read(taken);
            if taken + (AHEAD as u32) < ready {
                prefetch(
                    self.frames
                        .start
                        .as_ptr()
                        .cast::<u8>()
                        .wrapping_add(filled.read(taken + AHEAD as u32).addr as usize),
                );
            }
            let mut wire_length = first.len;
            let mut pieces = 1;
            if first.options.contains(XdpDescOptions::XDP_PKT_CONTD) {
                // The kernel makes all pieces of a packet ready at once.
                while taken + pieces < ready {
                    let piece = filled.read(taken + pieces);
                    free.write(taken + pieces, piece.addr & frame_of);
                    wire_length += piece.len;
                    pieces += 1;
                    if !piece.options.contains(XdpDescOptions::XDP_PKT_CONTD) {
                        break;
                    }
                }
            }
            debug_assert!(first.addr as usize + first.len as usize <= self.frames.length);
            // SAFETY: the kernel describes only bytes within the frames, and does not write to a
            // filled frame until it is returned, below.
            let bytes = unsafe {
                let start = self.frames.start.as_ptr().cast::<u8>().add(first.addr as usize);
                std::slice::from_raw_parts(start, first.len as usize)
            };
            sink(bytes, wire_length);
            free.write(taken, first.addr & frame_of);
            packets += 1;
            taken += pieces;
        }
        filled.consume(taken);
        free.produce(taken);
        packets
    }

    /// Notifies the kernel of free frames, if it waits for that.
    #[inline(always)]
    pub(super) fn wake_receiver(&self) {
        if let Rings::Receive { free, .. } = &self.rings
            && free.needs_wakeup()
        {
            self.drive();
        }
    }

    /// Lets the kernel receive on this thread.
    #[cold]
    pub(super) fn drive(&self) {
        // The result is visible in the ring; a removed interface is detected elsewhere.
        let _ = recv(&self.descriptor, &mut [0_u8; 0], RecvFlags::DONTWAIT);
    }

    /// Queues a packet, which must fit into a frame; returns false if no frame is free.
    /// [`push`](Self::push) sends it.
    pub(super) fn queue(&mut self, packet: &[u8]) -> bool {
        let Rings::Send { queued, unused, .. } = &mut self.rings else { return false };
        assert!(packet.len() <= self.frame_size as usize, "a packet larger than a frame");
        let Some(frame) = unused.pop() else { return false };
        // SAFETY: the frame is within the memory, and its number is in no ring: the kernel does not
        // use it.
        unsafe {
            let start = self.frames.start.as_ptr().cast::<u8>().add(frame as usize);
            std::slice::from_raw_parts_mut(start, packet.len()).copy_from_slice(packet);
        }
        // The ring has an entry for every frame.
        queued.write(
            0,
            XdpDesc { addr: frame, len: packet.len() as u32, options: XdpDescOptions::empty() },
        );
        queued.produce(1);
        true
    }

    /// Notifies the kernel of queued packets, and reclaims the frames of sent ones.
    pub(super) fn push(&mut self) -> io::Result<()> {
        let Rings::Send { queued, sent, unused } = &mut self.rings else { return Ok(()) };
        if queued.unconsumed() > 0 && queued.needs_wakeup() {
            match send(&self.descriptor, &[], SendFlags::DONTWAIT) {
                // Temporarily busy or out of buffers: the next call sends the rest of the ring.
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ready = sent.ready();
        unused.extend((0..ready).map(|ahead| sent.read(ahead)));
        sent.consume(ready);
        Ok(())
    }

    /// Returns the queued packets that the kernel has not taken yet.
    pub(super) fn unqueued(&self) -> u32 {
        match &self.rings {
            Rings::Receive { .. } => 0,
            Rings::Send { queued, .. } => queued.unconsumed(),
        }
    }

    /// Returns the queued packets that are not known to have been sent.
    pub(super) fn unsent(&self) -> u32 {
        match &self.rings {
            Rings::Receive { .. } => 0,
            Rings::Send { queued, unused, .. } => queued.mask + 1 - unused.len() as u32,
        }
    }
}
