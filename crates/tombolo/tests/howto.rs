//! The pages of docs/howto, the tutorial, and the page on clusters, do what they say: each is executed in a lab, as a reader would.
//!
//! A page names its lab in a comment, and its blocks say where they belong:
//!
//! ````text
//! <!-- lab: nat64 -->
//! ```toml gateway /etc/tombolo/tombolo.toml      a file
//! ```console client                              commands, behind "# ", and what they print
//! ````
//!
//! Of what a command prints, each line of the page has to be there, in that order; `...` stands for
//! anything. Each node has /etc and /var of its own, over the host's, and a /run of its own. What a page hides in a comment is
//! executed as well: the rest of the world. There is no systemd, so services are started as their units
//! do it; what ends with `&` goes on until the page ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tombolo_lab::{Lab, Output, Process, Scenario, skip_without, wait_until};

mod running;

use running::TOMBOLO;

const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/howto");
/// How long something may take that a reader waits for.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long a benchmark may take on a machine that does other things besides.
const MEASURING: Duration = Duration::from_secs(180);

/// A block of a page that is executed.
#[derive(Debug)]
struct Block {
    line: usize,
    node: String,
    /// The file that it is; else it is commands.
    file: Option<PathBuf>,
    text: Vec<String>,
}

/// A page: the name of its lab, and its blocks.
struct Page {
    lab: String,
    blocks: Vec<Block>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let lab = text.lines().find_map(|line| line.strip_prefix("<!-- lab: ")?.strip_suffix(" -->"));
        let mut page =
            Self { lab: lab.unwrap_or_else(|| panic!("{}: no lab", path.display())).to_owned(), blocks: vec![] };
        let mut open: Option<Option<Block>> = None;
        for (number, line) in (1..).zip(text.lines()) {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) => {
                    let mut words = info.split(' ').skip(1);
                    let node = words.next().map(str::to_owned);
                    let file = words.next().map(PathBuf::from);
                    open = Some(node.map(|node| Block { line: number, node, file, text: Vec::new() }));
                }
                (Some(block), Some(_)) => {
                    page.blocks.extend(block.take());
                    open = None;
                }
                (Some(Some(block)), None) => block.text.push(line.to_owned()),
                _ => {}
            }
        }
        page
    }
}

/// The lab of a page.
struct Setup {
    lab: Lab,
    /// What keeps the file systems of each node.
    holders: HashMap<String, Process>,
    /// Services, by node and name.
    services: HashMap<(String, String), Process>,
}

impl Setup {
    fn new(lab: &str) -> Self {
        let topology = Scenario::named(lab).unwrap_or_else(|| panic!("no lab {lab}")).topology;
        let lab = Lab::create(&topology).unwrap();
        let mut setup = Self { lab, holders: HashMap::new(), services: HashMap::new() };
        for node in topology.nodes {
            let home = setup.lab.directory().unwrap().join(&node.name);
            let mounts = ["etc", "var"].map(|tree| {
                let (upper, work) = (home.join(tree), home.join(format!("{tree}.work")));
                fs::create_dir_all(&upper).unwrap();
                fs::create_dir_all(&work).unwrap();
                let (upper, work) = (upper.display(), work.display());
                format!("mount -t overlay overlay -o lowerdir=/{tree},upperdir={upper},workdir={work} /{tree}")
            });
            let script =
                format!("{} && mount -t tmpfs tmpfs /run && echo held && exec sleep infinity", mounts.join(" && "));
            let command = setup.lab.node(&node.name).unwrap().command("unshare");
            let mut holder = command.args(["-m", "--propagation", "private", "sh", "-c", &script]).spawn().unwrap();
            holder.wait_for_text("held", PATIENCE).unwrap();
            setup.holders.insert(node.name, holder);
        }
        setup
    }

    /// A command in the network and the file systems of a node.
    fn command(&self, node: &str, text: &str) -> tombolo_lab::Command {
        let holder = self.holders.get(node).unwrap_or_else(|| panic!("no node {node}")).id().to_string();
        let path = Path::new(TOMBOLO).parent().unwrap().display();
        let text = format!("PATH={path}:/usr/sbin:/sbin:$PATH; {text}");
        self.lab.node(node).unwrap().command("nsenter").args(["-t", &holder, "-m", "sh", "-c", &text])
    }

    fn execute(&mut self, block: &Block) -> Result<(), String> {
        if let Some(file) = &block.file {
            let text = block.text.join("\n") + "\n";
            let script = format!("mkdir -p {} && cat > {}", file.parent().unwrap().display(), file.display());
            let written = self.command(&block.node, &script).stdin(text).run().unwrap();
            return written.success().map(drop).map_err(|error| error.to_string());
        }
        let mut lines = block.text.iter().peekable();
        while let Some(line) = lines.next() {
            let mut command = line.strip_prefix("# ").ok_or_else(|| format!("no command: {line}"))?.to_owned();
            while command.ends_with('\\') {
                command.pop();
                command += lines.next().map_or("", |line| line.trim_start());
            }
            let mut expected = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("# ")) {
                expected.push(line.as_str());
            }
            self.try_until_it_works(&block.node, &command, &expected)?;
        }
        Ok(())
    }

    fn try_until_it_works(&mut self, node: &str, command: &str, expected: &[&str]) -> Result<(), String> {
        // What a comment behind a command says is the reader's.
        let command = command.split("   #").next().unwrap_or_default().trim_end();
        if let Some(action) = command.strip_prefix("systemctl ") {
            return self.serve(node, action);
        }
        if let Some(command) = command.strip_suffix(" &") {
            let process = self.command(node, command).spawn().unwrap();
            self.services.insert((node.to_owned(), command.to_owned()), process);
            return Ok(());
        }
        let mut last = String::new();
        let limit = if command.starts_with("tombolo bench") { MEASURING } else { PATIENCE };
        let works = || {
            let output = self.command(node, command).limit(limit).run().ok()?;
            last = format!("{}\n{}\n{}", output.status, output.stdout, output.stderr);
            (output.status.success() && has_all(&output, expected)).then_some(())
        };
        wait_until(command, PATIENCE, works).map_err(|error| format!("{error}; expected {expected:?}, last: {last}"))
    }

    /// What systemd does.
    fn serve(&mut self, node: &str, action: &str) -> Result<(), String> {
        let name = action.rsplit(' ').next().unwrap_or_default();
        if action.starts_with("reload") {
            return self.try_until_it_works(node, &format!("{name} reload"), &[]);
        }
        let (command, ready) = match name {
            "tombolo" => ("exec tombolo run -c /etc/tombolo/tombolo.toml", "ready"),
            "bird" => ("mkdir -p /run/bird && exec bird -f", "Started"),
            "unbound" => ("exec unbound -d -v", "Start of unbound"),
            _ => return Err(format!("nobody knows how {name} is started")),
        };
        let key = (node.to_owned(), name.to_owned());
        drop(self.services.remove(&key).map(Process::stop));
        let mut process = self.command(node, command).spawn().unwrap();
        process.wait_for_text(ready, PATIENCE).map_err(|error| error.to_string())?;
        self.services.insert(key, process);
        Ok(())
    }
}

/// Whether the output has these lines in this order, with whatever else between its words.
fn has_all(output: &Output, expected: &[&str]) -> bool {
    let text = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = text.as_str();
    expected.iter().flat_map(|line| line.split("...")).map(str::trim).filter(|part| !part.is_empty()).all(|part| {
        let part = part.split_whitespace().collect::<Vec<_>>().join(" ");
        rest.find(&part).map(|at| rest = &rest[at + part.len()..]).is_some()
    })
}

fn follow(name: &str, tools: &[&str]) {
    follow_page(name, &Path::new(PAGES).join(format!("{}.md", name.replace('_', "-"))), tools);
}

#[test]
fn tutorial() {
    follow_page("tutorial", &Path::new(PAGES).join("../tutorial.md"), &["ping"]);
}

#[test]
fn cluster() {
    follow_page("cluster", &Path::new(PAGES).join("../cluster.md"), &["bird", "ping"]);
}

fn follow_page(name: &str, path: &Path, tools: &[&str]) {
    if skip_without(name, &[&["unshare", "nsenter"], tools].concat()) {
        return;
    }
    let page = Page::read(path);
    assert!(page.blocks.len() > 3, "{name}: {} blocks", page.blocks.len());
    let mut setup = Setup::new(&page.lab);
    for block in &page.blocks {
        if let Err(why) = setup.execute(block) {
            let log = setup
                .services
                .iter()
                .map(|((node, name), process)| format!("---- {name} in {node}:\n{}\n", process.log_tail(20)));
            panic!("{}:{} does not do what it says: {why}\n{}", path.display(), block.line, log.collect::<String>());
        }
    }
}

macro_rules! pages {
    ($($page:ident: $tools:expr;)*) => {
        $(#[test]
        fn $page() {
            follow(stringify!($page), $tools);
        })*

        #[test]
        fn every_page_is_executed() {
            let known = [$(format!("{}.md", stringify!($page).replace('_', "-"))),*];
            let pages = fs::read_dir(PAGES).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let others: Vec<_> = pages.filter(|page| page != "README.md" && !known.contains(page)).collect();
            assert_eq!(others, Vec::<String>::new());
        }
    };
}

pages! {
    in_a_minute: &["unbound", "dig", "curl", "python3", "nft", "radvd", "systemd-analyze"];
    nat64_at_home: &["unbound", "dig", "ping", "curl", "python3"];
    one_server_with_one_address: &["ping", "curl", "python3", "nft"];
    carrier_grade_nat: &["ping", "curl", "python3"];
    beside_a_firewall: &["nft", "iptables", "ip6tables", "ping"];
    beside_firewalld: &["firewalld", "dbus-daemon", "ping"];
    a_router_with_a_clat: &["ping", "traceroute"];
    a_router_that_follows_its_provider: &["ping"];
    a_border_for_map_and_lw4o6: &["ping"];
    from_tayga: &["tayga", "ping"];
    from_jool: &["ping", "curl", "python3"];
}
