//! Ids of tables, actions and registers on a switch.

/// Upper byte of an id, by kind of object.
pub(crate) mod prefixes {
    pub(crate) const ACTION: u32 = 0x01;
    pub(crate) const TABLE: u32 = 0x02;
    pub(crate) const COUNTER: u32 = 0x83;
    pub(crate) const REGISTER: u32 = 0x8b;
    pub(crate) const REGISTER_PARAMETER: u32 = 0x8d;
    pub(crate) const DIGEST: u32 = 0x8e;
    pub(crate) const PORT_METADATA: u32 = 0x90;
    pub(crate) const HASH_CONFIGURE: u32 = 0x95;
    pub(crate) const HASH_COMPUTE: u32 = 0x96;
}

/// Returns the id that the chip's compiler assigns to a name: the kind of object above 24 bits of
/// Jenkins' one-at-a-time hash.
///
/// A compiler uses the next free id if two names collide, so clients look ids up in a schema
/// instead of computing them.
#[must_use]
pub fn identifier(prefix: u32, name: &str) -> u32 {
    let mixed = name.bytes().fold(0_u32, |hash, byte| {
        let hash = hash.wrapping_add(u32::from(byte));
        let hash = hash.wrapping_add(hash << 10);
        hash ^ hash >> 6
    });
    let mixed = mixed.wrapping_add(mixed << 3);
    let mixed = mixed ^ mixed >> 11;
    let mixed = mixed.wrapping_add(mixed << 15);
    prefix << 24 | mixed & 0x00ff_ffff
}
