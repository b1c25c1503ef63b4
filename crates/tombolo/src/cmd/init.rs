//! `tombolo init`: three questions, and the files that a gateway needs on this host.

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use ipnet::Ipv6Net;
use tombolo_config::Host;
use tombolo_init::{AnswerError, Answers, File, Outside, Purpose, Question, Survey, files};

use super::print;

/// The answers that are known, and where the files go.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What the gateway is for: nat64, nat44 or clat
    #[arg(long, value_name = "KIND")]
    service: Option<Purpose>,
    /// Where the outside is: an interface, whose IPv4 address is shared, or IPv4 addresses that are routed to this host; of
    /// a CLAT the uplink, or the IPv6 address that stands for all hosts
    #[arg(long, value_name = "INTERFACE|ADDRESSES")]
    outside: Option<String>,
    /// Where the hosts inside are: interfaces or networks, separated by commas
    #[arg(long, value_name = "INTERFACE|NETWORK,...")]
    inside: Option<String>,
    /// The NAT64 prefix [default: 64:ff9b::/96; of a CLAT what the network says]
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<Ipv6Net>,
    /// Where the files go
    #[arg(short, long, value_name = "DIRECTORY", default_value = "/etc/tombolo")]
    output: PathBuf,
    /// Ask nothing: take what the host suggests for what is not given
    #[arg(short, long)]
    yes: bool,
    /// Overwrite files that are there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let survey = Survey::read(&Host::default().device).context("the host cannot be looked at")?;
    let answers = answers(&survey, arguments)?;
    let directory = std::path::absolute(&arguments.output)?;
    let files = files(&survey, &answers, &directory);
    if let Some(File { name, text, .. }) = files.first() {
        tombolo_config::parse(name, text)?;
    }
    write(&files, &directory, arguments.force)?;
    for File { name, about, .. } in &files {
        print::line(&format!("{}    {about}", directory.join(name).display()))?;
    }
    print::line("\nNothing is changed on this host yet. What puts it to use:\n")?;
    for File { name, next, .. } in &files {
        let path = directory.join(name).display().to_string();
        next.iter().try_for_each(|line| print::line(&format!("  {}", line.replace("{}", &path))))?;
    }
    Ok(())
}

fn answers(survey: &Survey, arguments: &Arguments) -> anyhow::Result<Answers> {
    let Arguments { service, outside, inside, prefix, yes, .. } = arguments;
    let asked = |question: Question| if *yes { None } else { Some(question.words(survey)) };
    let purpose = match service {
        Some(purpose) => *purpose,
        None => answer(survey, Question::Purpose, None, asked, str::parse)?,
    };
    let outside = answer(survey, Question::Outside(purpose), outside.as_deref(), asked, |text| {
        Outside::read(survey, purpose, text)
    })?;
    answer(survey, Question::Inside(purpose), inside.as_deref(), asked, |text| {
        Answers::read(survey, purpose, outside.clone(), text, *prefix)
    })
}

/// What was given, or is answered, or the host suggests. Who sits at a terminal is asked until the answer can be used.
fn answer<T>(
    survey: &Survey,
    question: Question,
    given: Option<&str>,
    asked: impl Fn(Question) -> Option<String>,
    read: impl Fn(&str) -> Result<T, AnswerError>,
) -> anyhow::Result<T> {
    let suggested = question.default(survey);
    let nothing = || AnswerError::Nothing(question.title());
    if let Some(given) = given {
        return Ok(read(given)?);
    }
    let Some(words) = asked(question) else {
        return Ok(read(&suggested.ok_or_else(nothing)?)?);
    };
    loop {
        print::line(&format!("{words}\n[{}]", suggested.as_deref().unwrap_or_default()))?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            bail!(
                "there is nobody who answers: give --service, --outside and --inside, or --yes for what the host suggests"
            );
        }
        let text = Some(line.trim()).filter(|text| !text.is_empty()).or(suggested.as_deref());
        match text.ok_or_else(nothing).and_then(&read) {
            Err(error) if io::stdin().is_terminal() => print::warning(&error.to_string()),
            other => return Ok(other?),
        }
    }
}

/// All files or none, as far as somebody else's stand in the way.
fn write(files: &[File], directory: &Path, force: bool) -> anyhow::Result<()> {
    let paths = || files.iter().map(|file| directory.join(file.name));
    let there: Vec<String> = paths().filter(|path| path.exists()).map(|path| path.display().to_string()).collect();
    if !force && !there.is_empty() {
        bail!("there already: {}; --force overwrites, -o DIRECTORY writes elsewhere", there.join(", "));
    }
    fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    for (file, path) in files.iter().zip(paths()) {
        fs::write(&path, &file.text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}
