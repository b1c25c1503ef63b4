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
        /// Hosts inside are there, if the plan goes by that.
        is_inside: u8,
        unused2: u32,
    }
}
