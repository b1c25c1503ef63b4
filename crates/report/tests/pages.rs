//! Pages of made-up result files: any number of gateways, points that are missing, marks.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tombolo_report::{
    Comparison, ReportError, Results, bars, bars::Verdict, compare::Finding, document, html, markdown,
};

const CORES: [u64; 5] = [1, 2, 4, 8, 16];
const GATEWAYS: [&str; 5] = ["plain", "tombolo", "iptables", "nftables", "tayga"];

fn run(procedure: &str, gateways: &[&str]) -> Value {
    let machine = json!({ "kernel": "6.12", "cpu": "Some CPU", "cpus": 2, "memory_kib": 8_000_000, "load_average": 0.1,
        "virtual_machine": true, "system": "Debian", "mitigations": { "spectre_v2": "Mitigation: Retpolines" } });
    json!({ "record": "run", "procedure": procedure, "gateways": gateways, "machine": machine,
        "parameters": { "effort": { "form": "quick", "trial_seconds": 0.4, "repetitions": 3, "resolution": 0.02 } },
        "comparable": "no: scaled down", "sending_cores": [0], "gateway_cores": [1], "sharing": "apart" })
}

fn summary(gateway: &str, quantity: &str, median: f64) -> Value {
    let values =
        json!({ "count": 3, "median": median, "p1": 0.0, "p99": 0.0, "min": median * 0.95, "max": median * 1.03 });
    json!({ "record": "summary", "gateway": gateway, "quantity": quantity, "unit": "frames/s", "higher_is_better": true,
        "summary": values, "spread": 0.0, "missing": 0, "bound": null, "ratio": null, "ratio_interval": null,
        "ratio_bound": null, "doubts": [], "point": null })
}

fn point(gateway: &str, cores: u64, median: f64) -> Value {
    let mut line = summary(gateway, &format!("throughput, {cores} cores"), median);
    line["point"] = json!({ "quantity": "throughput", "axis": "cores", "at": cores });
    line
}

/// A preset with so many gateways over cores, the last of which has no value at two points.
fn preset(gateways: usize) -> Vec<Value> {
    let names = &GATEWAYS[..gateways];
    let series = |contender: &str, scale: f64| {
        let median: Vec<f64> = CORES.iter().map(|cores| 400.0 * scale * (*cores as f64).powf(0.9)).collect();
        json!({ "contender": contender, "quantity": "throughput", "unit": "frames/s", "scale": 1000.0, "median": median })
    };
    let table = json!({ "title": "gateways against cores", "axis": "cores", "at": CORES,
        "series": [series("iptables", 1.0), series("plain", 2.2)] });
    let published = json!({ "source": "a draft, Figure 2", "hardware": "big", "software": "iptables", "method": "theirs",
        "notes": ["a misprint"], "table": [table] });
    let mut lines = vec![
        json!({ "record": "preset", "name": "draft-figure-2", "title": "cores", "asks": "How does it scale?", "form": "quick",
            "deviations": ["2 cores and not 16"], "published": published }),
        run("scalability", names),
    ];
    for (index, name) in names.iter().enumerate() {
        for cores in &CORES[..3] {
            let value = 900_000.0 / (1.0 + 0.4 * index as f64) * (*cores as f64).powf(0.8);
            let mut line = point(name, *cores, value);
            if index + 1 == gateways && *cores > 1 {
                line["summary"] = Value::Null;
                line["missing"] = json!(3);
                line["doubts"] = json!(["no rate passed"]);
            }
            if index == 0 && *cores == 4 {
                line["bound"] = json!("at-least");
                line["doubts"] = json!(["the tester set the limit"]);
            }
            lines.push(line);
        }
    }
    lines
}

fn file(directory: &TempDir, name: &str, lines: &[Value]) -> PathBuf {
    let path = directory.path().join(name);
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, lines).unwrap();
    path
}

fn page_of(lines: &[Value]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let results = Results::read(&[file(&directory, "results.jsonl", lines)]).unwrap();
    html::page(&document(&results, "a page").unwrap())
}

#[test]
fn one_two_and_five_gateways_have_a_column_and_a_line_each() {
    for gateways in [1, 2, 5] {
        let html = page_of(&preset(gateways));
        for name in &GATEWAYS[..gateways] {
            assert!(html.contains(&format!("<th scope=\"col\" class=\"n\">{name}</th>")), "{gateways}: {name}");
        }
        assert_eq!(html.matches("<svg").count(), 1, "{gateways}");
        assert!(html.contains("iptables, published") && html.contains("no rate passed"));
        assert!(!html.contains("NaN") && !html.contains("inf"), "{gateways}");
    }
}

#[test]
fn ours_stands_beside_the_published_at_the_same_number_of_cores() {
    let html = page_of(&preset(2));
    // 400 k of 880 k there; here only 1, 2 and 4 cores were measured.
    assert!(html.contains("400.0 k (0.455)"), "{html}");
    assert!(html.contains("2 cores and not 16") && html.contains("not comparable"));
    assert!(html.contains("class=\"n doubtful\">\u{2265} 2.728 M *"), "{html}");
}

#[test]
fn a_page_loads_and_runs_nothing() {
    let html = page_of(&preset(5));
    for forbidden in ["<script", "http://", "https://", "url(", "@import", "<link", "<img", " src="] {
        let found = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(forbidden), "{forbidden}");
    }
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
}

#[test]
fn what_was_interrupted_says_so_and_what_was_resumed_is_one_run() {
    let interrupted = vec![run("throughput", &["plain"])];
    assert!(page_of(&interrupted).contains("interrupted before its end"));
    let resumed =
        vec![run("throughput", &["plain"]), run("throughput", &["plain"]), summary("plain", "throughput", 7e5)];
    let html = page_of(&resumed);
    assert!(!html.contains("interrupted") && html.contains("700,000"));
}

#[test]
fn lengths_of_frames_become_an_axis() {
    let sized = |bytes: &str, value| {
        let mut run = run("throughput", &["plain", "tombolo"]);
        run["parameters"]["frame_bytes"] = json!(bytes);
        vec![run, summary("plain", "throughput", value), summary("tombolo", "throughput", value * 1.2)]
    };
    let html = page_of(&[sized("64", 900_000.0), sized("1518", 500_000.0)].concat());
    assert!(
        html.contains("throughput against bytes of a frame") && html.contains("<td class=\"n\">1518</td>"),
        "{html}"
    );
}

#[test]
fn loss_and_delays_are_curves_and_half_a_line_is_left_out() {
    let mut lines = vec![run("frame-loss", &["plain"]), run("latency", &["plain"])];
    let points = json!([{ "rate": 9e5, "loss_percent": 40.0, "valid": true }, { "rate": 8e5, "loss_percent": 0.0, "valid": true },
        { "rate": 1e6, "loss_percent": 90.0, "valid": false }]);
    let result = |quantity: &str, details: Value| {
        json!({ "record": "result", "gateway": "plain", "repetition": 1, "quantity": quantity, "details": details,
            "tally": { "trials": 9, "invalid": 2, "longest_pause_us": 1500.0 }, "deviations": [] })
    };
    lines.insert(1, result("frame loss at the highest rate", json!({ "points": points })));
    lines.insert(2, summary("plain", "frame loss at the highest rate", 40.0));
    lines.push(result("typical latency, forward", json!({ "histogram_us": [[1.0, 2.0, 10], [2.0, 8.0, 30]] })));
    lines.push(summary("plain", "typical latency, forward", 4.0));
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "results.jsonl", &lines);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"record\":\"res")).unwrap();
    let page = document(&Results::read(&[path]).unwrap(), "a page").unwrap();
    let html = html::page(&page);
    assert!(
        html.contains("Loss against the offered rate") && html.contains("Frames that took at most so long, forward")
    );
    assert!(html.contains("2 of 9 trials were invalid and repeated; the longest pause of the sending core was 1.5 ms"));
    let (text, figures) = markdown::page(&page, "report");
    assert!(figures.len() == 2 && text.contains("](report-2.svg)"));
}

#[test]
fn features_stand_beside_those_of_the_document() {
    let mut lines = vec![json!({ "record": "preset", "name": "thesis-features", "title": "features", "asks": "?",
        "published": { "source": "a thesis", "feature": [
            { "name": "ARP", "description": "answers", "status": { "p4": "fully implemented" } }] } })];
    lines.push(run("features", &["tombolo"]));
    lines.push(json!({ "record": "feature", "gateway": "tombolo", "feature": "ARP", "works": true, "how": "arping" }));
    lines
        .push(json!({ "record": "feature", "gateway": "tayga", "feature": "ARP", "works": false, "how": "no answer" }));
    let html = page_of(&lines);
    assert!(html.contains("<td class=\"better\">works</td><td class=\"worse\">does not work</td>"), "{html}");
    assert!(
        html.contains("<td class=\"published\">fully implemented</td>") && html.contains("ARP: no answer (tayga).")
    );
}

#[test]
fn what_became_slower_is_found_and_a_bound_is_in_doubt() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str, values: [f64; 3]| {
        let mut lines = vec![run("throughput", &["plain"])];
        lines.extend(
            ["plain", "tombolo", "tayga"].iter().zip(values).map(|(name, value)| summary(name, "throughput", value)),
        );
        lines[3]["bound"] = json!("at-least");
        Results::read(&[file(&directory, name, &lines)]).unwrap()
    };
    let found = Comparison::all(&of("old", [100.0, 100.0, 100.0]), &of("new", [101.0, 50.0, 50.0]));
    let findings: Vec<Finding> = found.iter().map(|one| one.finding).collect();
    assert_eq!(findings, [Finding::WithinSpread, Finding::Worse(2.0), Finding::InDoubt]);
    assert_eq!(found[1].in_words(), "slower by 2.00 times");
}

#[test]
fn what_is_no_result_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "notes.txt", &[json!({ "hello": 1 })]);
    assert!(matches!(Results::read(&[path]), Err(ReportError::NoRun { .. })));
    assert!(matches!(Results::read(&[directory.path().join("none")]), Err(ReportError::Unreadable { .. })));
}

#[test]
fn a_speed_is_judged_with_its_spread_and_a_bound_decides_one_way() {
    let directory = tempfile::tempdir().unwrap();
    let lookup = |gateway, family, ns| {
        let mut line = summary(gateway, &format!("route lookup, IPv{family}, 100000 routes"), ns);
        line["unit"] = json!("ns");
        line
    };
    let mut teardown = summary("tombolo:tc", "connection tear-down rate", 60e6);
    teardown["bound"] = json!("at-least");
    let mut better = summary("tombolo", "TCP goodput, 6to4, 1 flow", 6e9);
    better["ratio"] = json!({ "count": 3, "median": 0.97, "min": 0.96, "max": 0.98 });
    let mut goodput = summary("tombolo", "TCP goodput, 6to4, 10 flows", 5e9);
    goodput["ratio"] = json!({ "count": 3, "median": 0.7, "min": 0.6, "max": 0.8 });
    let mut sessions = summary("nat64", "100 M sessions over 1 M", 0.97);
    sessions["bound"] = json!("at-most");
    sessions["doubts"] = json!(["of 40 M sessions"]);
    let lines = [
        run("fast path in XDP", &[]),
        sessions.clone(),
        run("engine in memory", &[]),
        summary("engine", "stateless translation, 4 to 6", 12e6),
        summary("engine", "stateless translation, 6 to 4", 9.9e6),
        run("route-lookup", &["tombolo"]),
        lookup("tombolo", 4, 10.0),
        lookup("tombolo", 6, 11.5),
        lookup("kernel", 4, 40.0),
        run("teardown", &["tombolo:tc"]),
        teardown,
        run("tcp", &["plain", "tombolo"]),
        summary("plain", "TCP goodput, 6to4, 1 flow", 7e9),
        better,
        goodput,
    ];
    let judged = bars::judge(&Results::read(&[file(&directory, "all.jsonl", &lines)]).unwrap());
    let of = |what: &str| judged.iter().find(|one| one.what.contains(what)).unwrap();
    let verdict = |what| of(what).verdict;
    assert_eq!((verdict("IPv6 over IPv4"), verdict("IPv4 over the kernel")), (Verdict::WithinSpread, Verdict::NotMet));
    assert_eq!((verdict("tear-down"), verdict("NAT64 in TC")), (Verdict::Met, Verdict::NotMet));
    assert!(of("NAT64 in TC").figure.contains("0.700 (0.600 to 0.800, 3 values)"));
    assert!(of("NAT64 in TC").measured.contains("10 flows"), "the worst row counts");
    assert!(of("tear-down").figure.contains('\u{2265}'));
    assert_eq!((verdict("IPv6 over the kernel"), verdict("two cores")), (Verdict::NotMeasured, Verdict::NotMeasured));
    assert_eq!(
        (verdict("NAT64, 100 M UDP"), verdict("engine in memory, stateless")),
        (Verdict::Undecided, Verdict::WithinSpread)
    );
    assert!(of("NAT64, 100 M UDP").measured.contains("of 40 M sessions"), "a smaller table is said to be one");
    assert_eq!(verdict("NAT64, engine alone"), Verdict::NotMeasured, "the programs were not told to stay away");
    assert!(of("two cores").figure.contains("make bench-fastpath"));
    assert!(bars::tally(&judged).contains("1 met, 2 within the spread, 2 not met, 1 undecided"));
}
