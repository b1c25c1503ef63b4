//! How frames leave.

/// The longest frame, bytes with FCS: the longest of RFC 8219 section 4.1, and the IPv6 header that it
/// may have besides on the other side of a gateway.
pub const LONGEST_FRAME: u16 = 9216 + 40;
/// The longest live frame, bytes with FCS: a live frame is one page, and of that the kernel needs
/// room before and after the frame.
pub const LONGEST_LIVE_FRAME: u16 = 3400;

/// How frames leave. The same program makes them in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// The kernel runs the program once a frame and redirects the frame to the port (Linux 5.18):
    /// millions a second.
    #[default]
    LiveFrames,
    /// The program makes a burst at a time, which leaves through a socket of the port's own (Linux
    /// 4.18; frames of more than a page 6.6): for drivers that take no redirected frames, and for
    /// frames longer than a page.
    AfXdp,
    /// The same through a packet socket, a system call a frame: on any kernel with XDP.
    PacketSockets,
}

impl Means {
    /// Whether it can send frames of so many bytes, with FCS, for all that is known without trying.
    pub(crate) fn takes(self, frame_bytes: u16) -> bool {
        self != Means::LiveFrames || frame_bytes <= LONGEST_LIVE_FRAME
    }
}

/// How frames leave, in all that matters to whoever reads a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Which way.
    pub means: Means,
    /// Of AF_XDP: the driver takes frames from the tester's memory (zero copy). Else the kernel copies each.
    pub is_zero_copy: bool,
}

impl Sending {
    /// What results call it.
    pub fn name(self) -> &'static str {
        match (self.means, self.is_zero_copy) {
            (Means::LiveFrames, _) => "XDP, live frames (BPF_PROG_TEST_RUN)",
            (Means::AfXdp, true) => "XDP program, AF_XDP without copies (zero copy)",
            (Means::AfXdp, false) => "XDP program, AF_XDP, each frame copied by the kernel",
            (Means::PacketSockets, _) => "XDP program, packet sockets (AF_PACKET): the slowest way",
        }
    }
}
