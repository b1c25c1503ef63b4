//! What a series came to, for people and as CSV.

use tombolo_tester::{
    frame_size::FrameSize,
    gateway::Spec,
    procedure::{Bound, Measured},
    readings::GatewaySummary,
    selftest,
    series::{SeriesPlan, SeriesResult},
    summary::Summary,
    trial::Sharing,
};

use super::print;

pub(super) fn sign(bound: Option<Bound>) -> String {
    bound.map_or_else(String::new, |bound| format!("{} ", bound.sign()))
}

pub(super) fn in_words(measured: &Measured) -> String {
    match measured.value {
        Some(value) => format!("{} {}{} {}", measured.quantity, sign(measured.bound), number(value), measured.unit),
        None => format!("{}: none ({})", measured.quantity, measured.doubts.join("; ")),
    }
}

pub(super) fn tabulate(result: &SeriesResult) -> String {
    let mut table = print::table(&["gateway", "quantity", "median", "min", "max", "unit", "ratio (min..max)", "n"]);
    for row in &result.summaries {
        let GatewaySummary { summary, ratio, .. } = row;
        let doubtful = if row.doubts.is_empty() { "" } else { " *" };
        let ratio = ratio.map_or_else(
            || if row.gateway == result.summaries[0].gateway { "1".to_owned() } else { "-".to_owned() },
            |r| format!("{}{} ({}..{})", sign(row.ratio_bound), number(r.median), number(r.min), number(r.max)),
        );
        let or_none = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
        let count = summary.map_or(0, |s| s.count);
        table.add_row([
            row.gateway.clone(),
            row.quantity.clone(),
            format!("{}{}{doubtful}", sign(row.bound), or_none(summary.map(|s| s.median))),
            or_none(summary.map(|s| s.min)),
            or_none(summary.map(|s| s.max)),
            row.unit.clone(),
            ratio,
            if row.missing == 0 { count.to_string() } else { format!("{count} of {}", count + row.missing) },
        ]);
    }
    table.to_string()
}

/// The summaries of each length of frames as CSV (RFC 4180): one line each, absent values empty.
pub(super) fn comma_separated(results: &[(Option<FrameSize>, SeriesResult)]) -> String {
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let plain = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let mut lines = vec![
        "frame_size,gateway,quantity,unit,count,missing,median,p1,p99,min,max,bound,ratio,ratio_bound,doubts"
            .to_owned(),
    ];
    let rows = results.iter().flat_map(|(size, result)| result.summaries.iter().map(move |row| (size, row)));
    for (size, row) in rows {
        let of = |field: fn(&Summary) -> f64| plain(row.summary.as_ref().map(field));
        let sign = |bound: Option<Bound>| bound.map_or(String::new(), |bound| bound.sign().to_owned());
        let fields = [
            size.map_or_else(String::new, |size| size.to_string()),
            quoted(&row.gateway),
            quoted(&row.quantity),
            quoted(&row.unit),
            row.summary.map_or(0, |summary| summary.count).to_string(),
            row.missing.to_string(),
            of(|s| s.median),
            of(|s| s.p1),
            of(|s| s.p99),
            of(|s| s.min),
            of(|s| s.max),
            sign(row.bound),
            plain(row.ratio.map(|ratio| ratio.median)),
            sign(row.ratio_bound),
            quoted(&row.doubts.join("; ")),
        ];
        lines.push(fields.join(","));
    }
    lines.join("\r\n") + "\r\n"
}

pub(super) fn footnotes(plan: &SeriesPlan, result: &SeriesResult) -> String {
    let mut lines = vec![describe(&result.self_test)];
    for (gateway, placement) in &result.placement {
        let together = if placement.sharing == Sharing::Together { "sharing " } else { "" };
        lines.push(format!(
            "{gateway}: tester on core {:?}, {together}gateway on {:?} ({})",
            placement.sending, placement.gateway, placement.note
        ));
    }
    for (gateway, ports, generator) in &result.ports {
        let is_lab = ports.iter().all(|port| port.driver == "veth");
        lines.extend(ports.iter().filter(|_| !is_lab).map(|port| format!("{gateway}: {}", port.in_words())));
        if *generator != result.self_test.generator {
            lines.push(format!("{gateway}: frames leave by {generator}"));
        }
    }
    if plan.gateways.iter().any(|g| !matches!(g, Spec::External(_))) {
        lines.push("tester and gateway share this machine: the method of the RFCs, not their setup".to_owned());
    }
    if plan.effort.quick {
        let form = plan.effort.form;
        lines.push(format!("{form} form: scaled down, not comparable with published figures"));
    }
    lines.push(format!("searches end within {} % of the value found", plan.effort.resolution * 100.0));
    let said = result.deviations.iter().map(|(gateway, deviation)| format!("{gateway}: {deviation}"));
    lines.extend(said);
    for (gateway, tally) in &result.tallies {
        let silence = match tally.longest_silence_us {
            0.0 => String::new(),
            us => format!("; longest silence of the gateway {us:.0} us"),
        };
        let silence = match tally.longest_absence_us {
            0.0 => silence,
            us => format!("{silence}; the machine kept a core away from the gateway for up to {us:.0} us"),
        };
        lines.push(format!(
            "{gateway}: {} trials, {} of them invalid; longest pause of the sending core {:.0} us{silence}",
            tally.trials, tally.invalid, tally.longest_pause_us
        ));
    }
    for row in result.summaries.iter().filter(|row| !row.doubts.is_empty()) {
        lines.push(format!("* {}, {}: {}", row.gateway, row.quantity, row.doubts.join("; ")));
    }
    if result.summaries.iter().any(|s| s.bound.is_some() || s.ratio_bound.is_some()) {
        lines.push(">=, <=: a bound; the true value is that or more, or less. ?: it may be either".to_owned());
    }
    lines.join("\n")
}

pub(super) fn describe(test: &selftest::SelfTest) -> String {
    let receiver = test
        .receiver_ns
        .map_or_else(String::new, |ns| format!("; the receiver takes {ns:.0} ns of the gateway's core for each frame"));
    let ports: String = test.ports.iter().map(|port| format!("\n{}", port.in_words())).collect();
    let refused = match test.refused {
        0 => String::new(),
        frames => format!("; the port's driver did not take {} frames", number(frames as f64)),
    };
    format!(
        "self-test: {} frames/s of {} bytes made and checked on core {} ({} wrong, {} lost); 100,000 frames/s paced to {:.4} %, own delay {:.2} us, \
         longest pause of the machine in it {:.0} us{receiver}{refused}; {}; {}{ports}",
        number(test.highest_rate as f64),
        test.frame_bytes,
        test.core,
        test.wrong,
        test.lost,
        test.pacing_error_percent,
        test.calibration_us,
        test.longest_pause_us,
        test.generator,
        test.realtime_limit
    )
}

/// Three or four significant digits where there is a fraction, thousands apart where not.
pub(super) fn number(value: f64) -> String {
    if value.abs() < 1000.0 {
        let digits = if value.abs() < 10.0 { 3 } else { 1 };
        return format!("{value:.digits$}");
    }
    let whole = format!("{value:.0}");
    let digits: Vec<char> = whole.chars().collect();
    let mut text = String::new();
    for (i, digit) in digits.iter().enumerate() {
        let rest = digits.len() - i;
        if i > 0 && rest.is_multiple_of(3) && digits[i - 1] != '-' {
            text.push(',');
        }
        text.push(*digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [0.0, 1.25, 123.456, 1234.0, 1_234_567.0, -1000.0].map(number),
            ["0.000", "1.250", "123.5", "1,234", "1,234,567", "-1,000"]
        );
    }
}
