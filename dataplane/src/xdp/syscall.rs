//! The system call `bpf`: what it does with objects that links and programs have in common, maps
//! of maps, and programs that are not in an object.
#![allow(unsafe_code, reason = "aya has no calls for it; system calls on structures of the kernel")]

use rustix::process::{Resource, Rlimit, setrlimit};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_OBJ_PIN: libc::c_int = 6;
const BPF_OBJ_GET: libc::c_int = 7;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
pub(super) const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;

/// Fields of `union bpf_attr` that the commands read; the rest is zero.
#[repr(C)]
struct ObjectPath {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// As above.
#[repr(C)]
struct ObjectId {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
pub(super) struct ObjectInfo {
    pub(super) descriptor: RawFd,
    pub(super) length: u32,
    pub(super) info: u64,
}

/// Start of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: u64,
    machine_code_bytes: u32,
    instruction_bytes: u32,
    machine_code: u64,
    instructions: u64,
    load_time: u64,
    user: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;

/// Maximum length of a name in the kernel, with the terminating zero.
const NAME: usize = 16;

/// Fields of `union bpf_attr` for a new map; the rest is zero.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: RawFd,
    node: u32,
    name: [u8; NAME],
}

/// Fields of `union bpf_attr` for an element of a map.
#[repr(C)]
struct MapElement {
    map: RawFd,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// An instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) opcode: u8,
    /// Destination in the lower half, source in the upper half.
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

/// Kind of a program, the hook that it is loaded for, and its flags (`BPF_F_XDP_HAS_FRAGS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramKind {
    pub(super) kind: u32,
    pub(super) hook: u32,
    pub(super) flags: u32,
}

/// Fields of `union bpf_attr` for a new program.
#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; NAME],
    device: u32,
    hook: u32,
}

/// Returns a name as the kernel takes it: cut off, and zero-padded.
fn kernel_name(name: &str) -> [u8; NAME] {
    let mut bytes = [0; NAME];
    bytes.iter_mut().take(NAME - 1).zip(name.bytes()).for_each(|(to, from)| *to = from);
    bytes
}

/// # Safety
/// `attributes` must be the structure of the command; pointers in it must be valid for what the
/// command reads and writes.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads and writes as many bytes as `size_of` says; the rest is guaranteed
    // by the caller.
    match unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}

/// # Safety
/// As [`bpf`]; the command must answer with a new descriptor.
pub(super) unsafe fn descriptor<T>(
    command: libc::c_int,
    attributes: &mut T,
) -> io::Result<OwnedFd> {
    // SAFETY: guaranteed by the caller.
    let descriptor = unsafe { bpf(command, attributes)? };
    let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel has just created this descriptor for this process, and no other owner
    // exists.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Creates an object, and tries again without a limit of locked memory: kernels before 5.11 count
/// maps and programs as such.
///
/// # Safety
/// As [`descriptor`].
unsafe fn create<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let unlimited = Rlimit { current: None, maximum: None };
    // SAFETY: guaranteed by the caller.
    match unsafe { descriptor(command, attributes) } {
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                && setrlimit(Resource::Memlock, unlimited).is_ok() =>
        {
            // SAFETY: guaranteed by the caller.
            unsafe { descriptor(command, attributes) }
        }
        outcome => outcome,
    }
}

/// Creates an array of `entries` elements of `value_bytes` bytes.
pub(super) fn new_array(
    name: &str,
    value_bytes: u32,
    entries: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let kind = BPF_MAP_TYPE_ARRAY;
    let (key_bytes, inner, node, name) = (4, 0, 0, kernel_name(name));
    let mut map = MapCreate { kind, key_bytes, value_bytes, entries, flags, inner, node, name };
    // SAFETY: the structure of this command, which creates a descriptor and has no pointers.
    unsafe { create(BPF_MAP_CREATE, &mut map) }
}

/// Creates an empty array of maps like `inner`.
pub(super) fn new_array_of_maps(
    name: &str,
    entries: u32,
    inner: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let mut map = MapCreate {
        kind: BPF_MAP_TYPE_ARRAY_OF_MAPS,
        key_bytes: 4,
        value_bytes: 4,
        entries,
        flags: 0,
        inner: inner.as_raw_fd(),
        node: 0,
        name: kernel_name(name),
    };
    // SAFETY: the structure of this command, which creates a descriptor and has no pointers.
    unsafe { create(BPF_MAP_CREATE, &mut map) }
}

/// Puts a map into an array of maps. The kernel waits until no program uses the map that was there.
pub(super) fn put_map(outer: BorrowedFd<'_>, index: u32, inner: BorrowedFd<'_>) -> io::Result<()> {
    let value = inner.as_raw_fd();
    let mut element = MapElement {
        map: outer.as_raw_fd(),
        _pad: 0,
        key: &raw const index as u64,
        value: &raw const value as u64,
        flags: 0,
    };
    // SAFETY: the structure of this command; key and value have the sizes of an array of maps, and
    // live until it returns.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut element) }.map(drop)
}

/// Removes a map from an array of maps. The kernel waits until no program uses it.
pub(super) fn remove_map(outer: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let (key, value) = (&raw const index as u64, 0);
    let mut element = MapElement { map: outer.as_raw_fd(), _pad: 0, key, value, flags: 0 };
    // SAFETY: the structure of this command; the key has the size of an array's, and lives until it
    // returns.
    unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut element) }.map(drop)
}

/// Loads a program from its instructions.
pub(super) fn load_program(
    name: &str,
    kind: ProgramKind,
    program: &[Instruction],
) -> io::Result<OwnedFd> {
    let ProgramKind { kind, hook, flags } = kind;
    let mut load = ProgramLoad {
        kind,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel: 0,
        flags,
        name: kernel_name(name),
        device: 0,
        hook,
    };
    // SAFETY: the structure of this command, which creates a descriptor; instructions and licence
    // live until it returns.
    unsafe { create(BPF_PROG_LOAD, &mut load) }
}

/// Opens a pinned link or program.
pub(super) fn open(pin: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(pin.as_os_str().as_bytes())?;
    let mut get = ObjectPath { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    // SAFETY: the structure of this command, which creates a descriptor; the path ends with a zero
    // and lives until it returns.
    unsafe { descriptor(BPF_OBJ_GET, &mut get) }
}

/// Makes a descriptor refer to what another one refers to, under its number and with its owner.
pub(super) fn substitute(descriptor: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are open, and the first one still is after the call, so that its owner closes it
    // as before. Its owner only passes it to system calls.
    match unsafe { libc::dup3(to.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Pins a link or a program, so that it outlives this process.
pub(super) fn pin(pinned: BorrowedFd<'_>, pin: &Path) -> io::Result<()> {
    let path = CString::new(pin.as_os_str().as_bytes())?;
    let descriptor = pinned.as_raw_fd().unsigned_abs();
    let mut pin = ObjectPath { path: path.as_ptr() as u64, descriptor, flags: 0 };
    // SAFETY: the structure of this command; the path ends with a zero and lives until it returns.
    unsafe { bpf(BPF_OBJ_PIN, &mut pin) }.map(drop)
}

/// Opens a program by its ID, which takes `CAP_SYS_ADMIN`.
pub(super) fn program(number: u32) -> io::Result<OwnedFd> {
    let mut get = ObjectId { id: number, next: 0, flags: 0 };
    // SAFETY: the structure of this command, which creates a descriptor and has no pointers.
    unsafe { descriptor(BPF_PROG_GET_FD_BY_ID, &mut get) }
}

fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = ProgramInfo::default();
    let length = size_of::<ProgramInfo>() as u32;
    let mut ask =
        ObjectInfo { descriptor: program.as_raw_fd(), length, info: &raw mut info as u64 };
    // SAFETY: the structure of this command, which writes no more than `length` bytes of integers
    // to where `info` points.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut ask)? };
    Ok(info)
}

/// Returns the ID of a program.
pub(super) fn program_number(program: &OwnedFd) -> io::Result<u32> {
    Ok(program_info(program.as_fd())?.id)
}

/// Returns the name of a program as the kernel stores it: its first 15 bytes.
pub(super) fn program_name(program: &OwnedFd) -> io::Result<String> {
    let name = program_info(program.as_fd())?.name;
    Ok(name.iter().take_while(|&&byte| byte != 0).copied().map(char::from).collect())
}

/// Returns the instructions of a program as the verifier left them, eight bytes each; empty if the
/// kernel does not show them.
pub(super) fn instructions(program: BorrowedFd<'_>) -> io::Result<Vec<[u8; 8]>> {
    let mut info = program_info(program)?;
    let mut instructions = vec![[0; 8]; info.instruction_bytes as usize / 8];
    let instruction_bytes = (instructions.len() * 8) as u32;
    info = ProgramInfo {
        instruction_bytes,
        instructions: instructions.as_mut_ptr() as u64,
        ..ProgramInfo::default()
    };
    let length = size_of::<ProgramInfo>() as u32;
    let mut ask =
        ObjectInfo { descriptor: program.as_raw_fd(), length, info: &raw mut info as u64 };
    // SAFETY: as above; it writes no more than `instruction_bytes` to where `instructions` points,
    // which lives until it returns.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut ask)? };
    // The kernel clears the pointer if it may not show them.
    if info.instructions == 0 { Ok(Vec::new()) } else { Ok(instructions) }
}
