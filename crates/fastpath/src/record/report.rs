//! Reports of what was made in the kernel.

tombolo_records::constants! {
    pub(crate) const REPORT_BINDING: u8 = 1;
    pub(crate) const REPORT_SESSION: u8 = 2;
}

tombolo_records::records! {
    /// A binding or a session that was made. Addresses and ports as on the wire.
    plain pub(crate) struct ReportRecord as report {
        inside: [u64; 2],
        inside4: u32,
        outside4: u32,
        inside_port: u16,
        outside_port: u16,
        protocol: u8,
        service: u8,
        kind: u8,
        unused: u8,
        /// Of a binding: that of the packet that made it.
        remote: u32,
        remote_port: u16,
        unused2: u16,
        binding: u32,
        unused3: u32,
        /// Nanoseconds of the monotonic clock, to a timer interrupt.
        when: u64,
    }
}
