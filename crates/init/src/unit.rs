//! What systemd starts, and what the kernel is told before.

use std::fmt::Write as _;
use std::path::Path;

use crate::file::File;
use crate::gateway;
use crate::survey::Survey;

/// The unit of the package.
const UNIT: &str = include_str!("../../../packaging/tombolo.service");
const SYSCTL: &str = "gateway.sysctl.conf";

/// Forwarding.
pub(crate) fn sysctl(survey: &Survey) -> File {
    let mut text = String::from(
        "# What the host needs to be a router, by \"tombolo init\". The unit of the gateway sets it at each start.\n\
         net.ipv4.ip_forward = 1\nnet.ipv6.conf.all.forwarding = 1\n",
    );
    for interface in &survey.advertised {
        let _ = write!(
            text,
            "# Its default route is from a router's advertisement, which a host that forwards ignores otherwise.\n\
             net.ipv6.conf.{}.accept_ra = 2\n",
            interface.replace('.', "/")
        );
    }
    File { name: SYSCTL, text, about: "forwarding", next: &["sysctl --load {}"] }
}

/// The unit; where a package has one, what differs from it.
pub(crate) fn service(survey: &Survey, directory: &Path) -> File {
    let program = survey.programs.tombolo.display();
    let start = format!("ExecStart={program} run -c {}", directory.join(gateway::NAME).display());
    let settings = format!("ExecStartPre=-+/sbin/sysctl --quiet --load {}", directory.join(SYSCTL).display());
    if survey.programs.packaged {
        let text = format!(
            "# The packaged unit with the configuration of \"tombolo init\".\n\
             [Service]\nExecStartPre=\n{settings}\nExecStart=\n{start}\n"
        );
        return File {
            name: "gateway.service.conf",
            text,
            about: "for systemd: the packaged unit runs this configuration",
            next: &[
                "install -D -m 644 {} /etc/systemd/system/tombolo.service.d/gateway.conf",
                "systemctl daemon-reload && systemctl enable tombolo && systemctl restart tombolo",
            ],
        };
    }
    let lines = UNIT.lines().map(|line| match line.split_once('=') {
        Some(("ExecStart", _)) => start.clone(),
        Some(("ExecStartPre", _)) => settings.clone(),
        Some(("ExecReload", rest)) => format!("ExecReload={}", rest.replace("/usr/bin/tombolo", &program.to_string())),
        _ => line.to_owned(),
    });
    File {
        name: "gateway.service",
        text: lines.map(|line| line + "\n").collect(),
        about: "for systemd: the unit",
        next: &[
            "install -m 644 {} /etc/systemd/system/tombolo.service",
            "systemctl daemon-reload && systemctl enable --now tombolo",
        ],
    }
}
