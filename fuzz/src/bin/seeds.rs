//! Writes the corpus that fuzzing begins with: the packets of the golden cases for the targets of
//! packets, the configurations for those of text. `seeds DIRECTORY` fills `DIRECTORY/<target>/`.

use std::path::{Path, PathBuf};

use toml::Table;

fn main() -> std::io::Result<()> {
    let corpus = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "corpus".into()));
    let configurations = tombolo_fuzz::configurations();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases");
    let mut count = 0;
    for service in std::fs::read_dir(&cases)?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        for case in std::fs::read_dir(&service)?.flatten().map(|entry| entry.path()) {
            let Ok(text) = std::fs::read_to_string(case.join("case.toml")) else { continue };
            let Ok(table) = text.parse::<Table>() else { continue };
            let config = table.get("config").and_then(|value| value.as_str()).unwrap_or_default();
            let choice = configurations.iter().position(|path| *path == service.join(config)).unwrap_or(0);
            let packets: Vec<_> = packets(&table).into_iter().map(|packet| (0, packet)).collect();
            let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let bytes = tombolo_fuzz::input(u8::try_from(choice).unwrap_or(0), packets);
            for target in ["parse", "round_trip", "engine"] {
                write(&corpus, target, &name, &bytes)?;
            }
            count += 1;
        }
    }
    let examples = std::fs::read_dir(cases.join("../../examples"))?.flatten().map(|entry| entry.path());
    let texts: Vec<_> = configurations.iter().cloned().chain(examples).collect();
    for (number, path) in texts.iter().enumerate() {
        write(&corpus, "config", &number.to_string(), &std::fs::read(path)?)?;
    }
    let tayga = "tun-device nat64\nipv4-addr 192.168.255.1\nipv6-addr 2001:db8::1\nprefix 64:ff9b::/96\nwkpf-strict no\n\
                 map 192.0.2.0/24 2001:db8:2::/120\nmap-file static.map\ndynamic-pool 192.168.255.0/24\n\
                 data-dir /var\nstrict-frag-hdr on\nudp-cksum-mode calc\nlog drop reject icmp self dyn\n\
                 offlink-mtu 1492\nworkers 4\ntun-up yes\ntun-ip 192.0.0.1/29\ntun-route 64:ff9b::/96\n";
    write(&corpus, "tayga", "all", tayga.as_bytes())?;
    println!("{count} cases, {} configurations", configurations.len());
    Ok(())
}

fn packets(case: &Table) -> Vec<Vec<u8>> {
    let steps = case.get("packet").and_then(|value| value.as_array()).cloned().unwrap_or_default();
    steps.iter().filter_map(|step| step.get("in")?.as_str()).map(bytes).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.bytes().filter_map(|digit| (digit as char).to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn write(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let directory = corpus.join(target);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(format!("seed-{name}")), bytes)
}
