//! What stateless services look up.

tombolo_records::constants! {
    /// Addresses whose shares follow each other (lwaftr.h).
    pub(crate) const SHARES_OF_A_BLOCK: u32 = 256;
    /// Blocks of a cache line, and softwires of one.
    pub(crate) const BLOCKS_OF_A_LINE: usize = 32;
    pub(crate) const LOCALS_OF_A_LINE: usize = 64;
    /// The next hop of the table of a MAP domain's IPv4 addresses is a rule, or, with this bit, a
    /// group of rules that the port decides among.
    pub(crate) const MAP_BY_PSID: u32 = 1 << 23;
}

tombolo_records::records! {
    /// A row of the table of explicit mappings, all in the processor's byte order.
    plain pub(crate) struct ExplicitRow as explicit_row {
        ipv6: [u64; 2],
        ipv4: u32,
        /// The bits of an IPv4 address that are its suffix.
        suffix: u32,
        /// Zero bits behind the suffix in IPv6: 0 to 96.
        shift: u32,
        unused: u32,
    }

    /// How the ports of an address are divided (RFC 7597 section 5.1), and where its rows are.
    plain pub(crate) struct SoftwireShare as softwire_share {
        /// The row of PSID 0. The others follow, whether there is a softwire or not.
        first: u32,
        /// The last PSID that has a row.
        last: u16,
        offset_bits: u8,
        psid_bits: u8,
    }

    /// Address of the lwB4, as on the wire; zeros if there is no softwire.
    plain pub(crate) struct SoftwireRecord as softwire_row {
        remote: [u64; 2],
    }

    /// Numbers of blocks; 0 where there is none.
    plain pub(crate) struct SoftwireBlocks as softwire_blocks {
        number: [u16; BLOCKS_OF_A_LINE],
    }

    /// Which of the service's own addresses a row has.
    plain pub(crate) struct SoftwireLocals as softwire_locals {
        number: [u8; LOCALS_OF_A_LINE],
    }

    /// A rule of a MAP domain, in a cache line. All numbers are in the processor's byte order.
    plain pub(crate) struct MapRuleRecord as map_rule {
        ipv6: [u64; 2],
        /// The bits of the lower half that lie behind the End-user prefix, where the interface
        /// identifier shows.
        behind: u64,
        ipv4: u32,
        ipv4_mask: u32,
        /// The given PSID plus one; 0 if it is embedded, or there is none.
        given_psid: u32,
        /// Embedded bits: of the address, of the PSID, and how far from the end of the address they
        /// lie (0 to 128).
        suffix_bits: u8,
        embedded_psid_bits: u8,
        shift: u8,
        /// Bits of an assigned prefix's hosts: 0 for whole and shared addresses.
        host_bits: u8,
        offset_bits: u8,
        psid_bits: u8,
        /// Bits behind the PSID in the interface identifier.
        behind_psid: u8,
        unused: u8,
        unused2: u32,
        unused3: u64,
    }

    /// Rules of one address, each with a PSID given. Without PSID bits the group is left to the
    /// engine.
    plain pub(crate) struct MapGroup as map_group {
        /// Number of the first of its members, one for each PSID.
        first: u32,
        offset_bits: u8,
        psid_bits: u8,
        unused: u16,
    }
}
