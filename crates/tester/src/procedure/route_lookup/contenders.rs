//! Who is measured in user space: our table, one key at a time and batched, and libraries of the
//! field.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use ip_network::{Ipv4Network, Ipv6Network};
use ip_network_table::IpNetworkTable;
use poptrie::Poptrie;
use prefix_trie::PrefixMap;
use tombolo_lab::Namespace;
use tombolo_tables::lpm::{Key, Lpm, Match, Reader, Route};

use super::keys::{Drawn, Keys};

/// Does so many lookups; what it returns keeps the compiler from leaving them out, and is the same
/// for all that look up in user space.
pub type Worker<'a, K> = Box<dyn FnMut(Keys<'_, K>, usize) -> u64 + Send + 'a>;

/// Somebody who looks up routes.
pub struct Contender<'a, K> {
    /// Name in the tables.
    pub name: &'static str,
    /// Network namespace that its threads must be in.
    pub namespace: Option<Namespace>,
    /// Seconds to build its table.
    pub build_seconds: f64,
    start: Box<dyn Fn() -> Worker<'a, K> + Sync + 'a>,
}

impl<'a, K> Contender<'a, K> {
    /// A contender whose threads each call what `start` makes.
    pub fn new(name: &'static str, start: impl Fn() -> Worker<'a, K> + Sync + 'a) -> Self {
        Self { name, namespace: None, build_seconds: 0.0, start: Box::new(start) }
    }

    /// The work of one thread.
    #[must_use]
    pub fn worker(&self) -> Worker<'a, K> {
        (self.start)()
    }
}

/// Draws keys and looks nothing up.
#[must_use]
pub fn dry<'a, K: Drawn>() -> Contender<'a, K> {
    Contender::new("dry", || Box::new(|keys, count| keys.drive(count, Drawn::folded)))
}

/// Packets that a worker handles between two looks at its queues: a reader pins anew once for each.
const PACKETS: usize = 64;

/// Our table, a key at a time.
#[must_use]
pub fn tombolo<'a, K: Drawn>(table: &Lpm<K>) -> Contender<'a, K> {
    let reader = table.reader();
    Contender::new("tombolo", move || {
        let mut reader: Reader<K> = reader.clone();
        Box::new(move |keys, count| {
            let (mut hold, mut looked_up) = (reader.pin(), 0);
            keys.drive(count, |key| {
                looked_up += 1;
                if looked_up % PACKETS == 0 {
                    hold.renew();
                }
                number(hold.lookup(key))
            })
        })
    })
}

/// Our table, keys in batches.
#[must_use]
pub fn tombolo_batched<'a, K: Drawn>(table: &Lpm<K>) -> Contender<'a, K> {
    let reader = table.reader();
    Contender::new("tombolo batched", move || {
        let mut reader: Reader<K> = reader.clone();
        Box::new(move |keys, count| {
            let mut matches = [None; PACKETS];
            keys.drive_batches(count, |keys: &[K; PACKETS]| {
                reader.pin().lookup_batch(keys, &mut matches);
                matches.iter().map(|found| u64::from(number(*found))).sum()
            })
        })
    })
}

#[inline(always)]
fn number(found: Option<Match>) -> u32 {
    found.map_or(0, |found| found.next_hop().number())
}

/// Libraries that look up a family's routes.
pub trait Libraries: Drawn {
    /// All of them, with these routes.
    fn libraries<'a>(routes: &[Route<Self>]) -> Vec<Contender<'a, Self>>;
}

/// The three libraries for one key type; they differ in names only.
macro_rules! libraries {
    ($key:ty, $address:ty, $network:ty, $longest_match:ident) => {
        impl Libraries for $key {
            fn libraries<'a>(routes: &[Route<Self>]) -> Vec<Contender<'a, Self>> {
                let parts = || {
                    routes.iter().map(|route| (route.prefix.key(), route.prefix.prefix_len(), route.next_hop.number()))
                };
                let begin = Instant::now();
                let poptrie: Poptrie<($key, u8), u32> =
                    parts().map(|(key, len, number)| ((key, len), number)).collect();
                let poptrie = std::sync::Arc::new(poptrie);
                let mut first = Contender::new("poptrie", move || {
                    let table = std::sync::Arc::clone(&poptrie);
                    Box::new(move |keys: Keys<'_, $key>, count| {
                        keys.drive(count, |key| table.lookup(key).copied().unwrap_or(0))
                    })
                });
                first.build_seconds = begin.elapsed().as_secs_f64();

                let begin = Instant::now();
                let map: PrefixMap<($key, u8), u32> = parts().map(|(key, len, number)| ((key, len), number)).collect();
                let map = std::sync::Arc::new(map);
                let mut second = Contender::new("prefix-trie", move || {
                    let table = std::sync::Arc::clone(&map);
                    Box::new(move |keys: Keys<'_, $key>, count| {
                        keys.drive(count, |key| {
                            table.get_lpm(&(key, <$key as Key>::BITS)).map_or(0, |(_, number)| *number)
                        })
                    })
                });
                second.build_seconds = begin.elapsed().as_secs_f64();

                let begin = Instant::now();
                let mut table = IpNetworkTable::new();
                for (key, len, number) in parts() {
                    if let Ok(network) = <$network>::new_truncate(<$address>::from_bits(key), len) {
                        table.insert(network, number);
                    }
                }
                let table = std::sync::Arc::new(table);
                let mut third = Contender::new("ip_network_table", move || {
                    let table = std::sync::Arc::clone(&table);
                    Box::new(move |keys: Keys<'_, $key>, count| {
                        keys.drive(count, |key| {
                            table.$longest_match(<$address>::from_bits(key)).map_or(0, |(_, number)| *number)
                        })
                    })
                });
                third.build_seconds = begin.elapsed().as_secs_f64();
                vec![first, second, third]
            }
        }
    };
}

libraries!(u32, Ipv4Addr, Ipv4Network, longest_match_ipv4);
libraries!(u128, Ipv6Addr, Ipv6Network, longest_match_ipv6);
