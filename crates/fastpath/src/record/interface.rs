//! The interfaces that the programs are attached to.

tombolo_records::constants! {
    /// Interfaces that the programs can tell apart: by the lower bits of their numbers.
    pub(crate) const INTERFACES: u32 = 256;
}

tombolo_records::records! {
    plain pub(crate) struct InterfaceRecord as interface {
        number: u32,
        mac: [u8; 6],
        /// XDP may send through it.
        xdp_sends: u8,
        /// Services, a bit each by place, whose hosts inside are there, of those for which interfaces are listed.
        inside_of: u8,
        unused2: u32,
    }
}
