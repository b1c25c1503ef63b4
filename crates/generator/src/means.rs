//! How frames leave.

/// How frames leave. The same program makes them either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Means {
    /// The kernel runs the program once a frame and redirects the frame to the port (Linux 5.18):
    /// millions a second.
    #[default]
    LiveFrames,
    /// Each frame comes back from the kernel and is sent through a packet socket, two system calls
    /// a frame: some hundred thousand a second, on any kernel with XDP.
    PacketSockets,
}

impl Means {
    /// What results call it.
    pub fn name(self) -> &'static str {
        match self {
            Means::LiveFrames => "XDP, live frames (BPF_PROG_TEST_RUN)",
            Means::PacketSockets => "XDP program, packet sockets (AF_PACKET): the slower fallback",
        }
    }
}
