//! The tables that every switch has, of those the ones used here: `$PORT`, `$PORT_STAT` and
//! `$PORT_STR_INFO`.

/// Their schema, as a server without one of its own reports it.
pub const SCHEMA: &str = include_str!("fixed.json");

/// Table of ports: key [`DEV_PORT`].
pub const PORT: &str = "$PORT";
/// Table from the name on the front panel to the device's number.
pub const PORT_NAMES: &str = "$PORT_STR_INFO";
/// Table of what ports' MACs counted: key [`DEV_PORT`], read only. The driver answers with what it
/// knew at its last look at the chip, unless it is asked to look again (`from_hw`).
pub const PORT_COUNTERS: &str = "$PORT_STAT";
/// A port's number within the device.
pub const DEV_PORT: &str = "$DEV_PORT";
/// A port's name on the front panel, such as `1/0`.
pub const PORT_NAME: &str = "$PORT_NAME";
/// A port's speed.
pub const SPEED: &str = "$SPEED";
/// A port's forward error correction.
pub const FEC: &str = "$FEC";
/// Whether a port is to be up.
pub const PORT_ENABLE: &str = "$PORT_ENABLE";
/// Whether a port is up.
pub const PORT_UP: &str = "$PORT_UP";

/// Frames received without an error.
pub const RECEIVED_OK: &str = "$FramesReceivedOK";
/// Frames received, whatever became of them.
pub const RECEIVED: &str = "$FramesReceivedAll";
/// Frames received with a wrong checksum.
pub const WRONG_CHECKSUM: &str = "$FramesReceivedwithFCSError";
/// Frames received with an error of any kind.
pub const WITH_ERROR: &str = "$FrameswithanyError";
/// Frames received that ask the port to stop sending, and go no further.
pub const PAUSE: &str = "$FramesReceivedoftypePAUSE";
/// The same for a class of traffic.
pub const PRIORITY_PAUSE: &str = "$PriorityPauseFrames";
/// Frames that found the port's buffer full.
pub const NO_ROOM: &str = "$FramesDroppedBufferFull";
/// Frames sent without an error.
pub const SENT_OK: &str = "$FramesTransmittedOK";
/// Frames sent.
pub const SENT: &str = "$FramesTransmittedAll";
