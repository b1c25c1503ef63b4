//! The interfaces that the programs are attached to.

tombolo_records::constants! {
    /// Interfaces that the programs can tell apart: by the lower bits of their numbers.
    pub(crate) const INTERFACES: u32 = 256;
    /// The kernel's stack does not forward packets of IPv4 that come in by an interface.
    pub(crate) const REFUSES_IPV4: u8 = 1;
    /// Nor those of IPv6.
    pub(crate) const REFUSES_IPV6: u8 = 2;
    /// It drops packets of IPv4 whose source is not behind the interface (`rp_filter` 1).
    pub(crate) const CHECKS_SOURCES: u8 = 4;
}

tombolo_records::records! {
    plain pub(crate) struct InterfaceRecord as interface {
        number: u32,
        mac: [u8; 6],
        /// XDP may send through it.
        xdp_sends: u8,
        /// Services, a bit each by place, whose hosts inside are there, of those for which interfaces are listed.
        inside_of: u8,
        /// What the kernel's stack takes no packets of that come in there, and more about what it takes: a bit each,
        /// `REFUSES_IPV4` and so on.
        stack_refuses: u8,
        /// Other nodes of the cluster redirect through it, where such interfaces are listed.
        is_core: u8,
        unused: [u8; 2],
    }
}
