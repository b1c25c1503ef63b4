//! The parser: whatever the bytes, what it reports lies within them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tombolo_engine::packet::{HEADROOM, Offload, Packet};
use tombolo_engine::parse::{AnyParsed, Parsed, Payload, parse};
use tombolo_fuzz::{REPAIR, layout, packets, repair};

fuzz_target!(|data: &[u8]| {
    let Some((_, data)) = data.split_first() else { return };
    for (control, bytes) in packets(data) {
        let mut bytes = bytes.to_vec();
        if control & REPAIR != 0 {
            repair(&mut bytes);
        }
        let mut buffer = vec![0; HEADROOM];
        buffer.extend_from_slice(&bytes);
        let Some(mut packet) = Packet::new(&mut buffer, HEADROOM, bytes.len(), Offload::default()) else { return };
        match parse(&mut packet) {
            Ok(AnyParsed::V4(parsed)) => {
                check(&parsed, &packet);
                let _ = parsed.embedded(&packet).map(|embedded| check_embedded(&embedded));
            }
            Ok(AnyParsed::V6(parsed)) => {
                check(&parsed, &packet);
                let _ = parsed.embedded(&packet).map(|embedded| check_embedded(&embedded));
            }
            Err(_) => {}
        }
    }
});

fn check<A>(parsed: &Parsed<A>, packet: &Packet<'_>) {
    let (length, transport) = (parsed.length as usize, usize::from(parsed.transport_offset));
    assert_eq!(length, packet.len(), "padding stays");
    assert!(transport <= length);
    let needed = match parsed.payload {
        Payload::Tcp => 20,
        Payload::Udp | Payload::EchoRequest | Payload::EchoReply | Payload::IcmpError | Payload::IcmpOther => 8,
        Payload::Other | Payload::Piece => 0,
    };
    assert!(transport + needed <= length, "{:?} of {} bytes", parsed.payload, length - transport);
    if let Some(found) = layout(packet.bytes())
        && parsed.obstacle.is_none()
    {
        assert_eq!((found.protocol, found.transport), (parsed.protocol.0, transport));
        assert_eq!(found.is_fragment, parsed.is_piece());
    }
}

fn check_embedded<A>(embedded: &Parsed<A>) {
    assert!(u32::from(embedded.transport_offset) <= embedded.length);
}
