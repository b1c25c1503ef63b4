//! No parser panics, whatever the bytes.

use proptest::prelude::*;
use tombolo_wire::{
    EthernetView, Icmpv4View, Icmpv6View, Ipv4Header, Ipv4View, Ipv6Header, Ipv6View, TcpView, UdpView,
};

fn parse_everything(bytes: &[u8]) -> usize {
    let mut parsed = 0;
    if let Ok(view) = EthernetView::parse(bytes) {
        parsed += view.payload().len() + usize::from(view.ether_type());
    }
    if let Ok(view) = Ipv4View::parse(bytes).or_else(|_| Ipv4View::parse_header(bytes)) {
        parsed += view.payload().len() + view.options().count() + usize::from(view.checksum_verifies());
        let mut copy = [0; 20];
        Ipv4Header::from(view).emit(&mut copy);
    }
    if let Ok(view) = Ipv6View::parse(bytes).or_else(|_| Ipv6View::parse_header(bytes)) {
        parsed += view.payload().len() + view.upper_layer().map_or(0, |upper| upper.offset);
        let mut copy = [0; 40];
        Ipv6Header::from(view).emit(&mut copy);
        assert_eq!(copy, bytes[..40]);
    }
    if let Ok(view) = TcpView::parse(bytes) {
        parsed += view.payload().len() + view.options().count();
    }
    parsed += UdpView::parse(bytes).map_or(0, |view| view.payload().len());
    parsed += Icmpv4View::parse(bytes).map_or(0, |view| view.body().len());
    parsed + Icmpv6View::parse(bytes).map_or(0, |view| view.body().len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn parsers_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), version in 0_u8..3) {
        // Two of three packets begin as IP packets do, or most would end at the version.
        if let Some(first) = bytes.first_mut() && version > 0 {
            *first = *first & 0x0f | if version == 1 { 0x40 } else { 0x60 };
        }
        parse_everything(&bytes);
    }
}
