//! Which file of a crate imports which, read from the tokens: `use` of every form, paths that begin
//! with `crate`, `super`, `self` or a module below, and what an entrance hands on (`pub use`) by
//! where it comes from. What is compiled for tests only does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The path of a module within its crate: empty for the root.
pub(crate) type Module = Vec<String>;

/// A file of a crate.
pub(crate) struct Source {
    /// The module that it is.
    pub(crate) module: Module,
    /// It has modules below it, and hands their names on: `mod.rs` and roots of crates.
    pub(crate) is_entrance: bool,
    /// What stands in it.
    pub(crate) text: String,
}

/// Reads all files below the folder `src` of a crate.
pub(crate) fn read(src: &Path) -> Vec<Source> {
    let (mut sources, mut folders) = (Vec::new(), vec![src.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                sources.push(source(path.strip_prefix(src).unwrap(), text));
            }
        }
    }
    sources
}

/// The file at `path`, from `src` on.
pub(crate) fn source(path: &Path, text: String) -> Source {
    let mut module: Module = path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    let is_entrance = module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    if is_entrance {
        module.pop();
    }
    Source { module, is_entrance, text }
}

/// Which modules of the crate each module imports.
pub(crate) fn arrows(sources: &[Source]) -> BTreeMap<Module, BTreeSet<Module>> {
    let modules: BTreeSet<&Module> = sources.iter().map(|source| &source.module).collect();
    let mut contents: BTreeMap<Module, Content> = BTreeMap::new();
    for source in sources {
        let tokens = source.text.parse().unwrap_or_else(|error| panic!("{:?}: {error}", source.module));
        // A crate with main.rs and lib.rs has two roots: they are taken for one.
        let content = contents.entry(source.module.clone()).or_default();
        content.hands_on |= source.is_entrance;
        content.read(tokens, &source.module, &modules, &source.module);
    }
    let resolve = |path: &[String]| resolve(path, &contents, &mut BTreeSet::new());
    let arrows = contents.iter().map(|(module, content)| {
        let mut targets: BTreeSet<Module> = content.paths.iter().filter_map(|path| resolve(path)).collect();
        targets.remove(module);
        (module.clone(), targets)
    });
    arrows.collect()
}

/// The module that a path leads to: the longest one that it begins with, or where the name after it
/// comes from if that module only hands it on.
fn resolve(path: &[String], contents: &BTreeMap<Module, Content>, seen: &mut BTreeSet<Module>) -> Option<Module> {
    let (module, content, rest) =
        (0..=path.len()).rev().find_map(|end| Some((&path[..end], contents.get(&path[..end])?, &path[end..])))?;
    let origin = rest.first().and_then(|name| content.names.get(name));
    match origin {
        Some(origin) if seen.insert([module, &rest[..1]].concat()) => {
            resolve(&[origin, &rest[1..]].concat(), contents, seen)
        }
        _ => Some(module.to_vec()),
    }
}

/// What the tokens of a module say about others. All paths begin at the root.
#[derive(Default)]
struct Content {
    /// It is an entrance, whose `pub use` is no import of its own.
    hands_on: bool,
    /// Paths that are used.
    paths: Vec<Vec<String>>,
    /// Names that it hands on, and where they come from.
    names: BTreeMap<String, Vec<String>>,
}

impl Content {
    /// Reads the tokens that stand in `scope`: `module` itself, or a module written within it.
    fn read(&mut self, tokens: TokenStream, module: &Module, modules: &BTreeSet<&Module>, scope: &Module) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut place = 0;
        while place < tokens.len() {
            if is(&tokens, place, "#") {
                let of_tests = matches!(tokens.get(place + 1), Some(TokenTree::Group(group)) if is_of_tests(group));
                place = if of_tests { item_end(&tokens, place) } else { place + 2 };
            } else if is(&tokens, place, "use") {
                let end = (place..tokens.len()).find(|&end| is(&tokens, end, ";")).unwrap_or(tokens.len());
                let is_public = place > 0 && (is(&tokens, place - 1, "pub") || is(&tokens, place.max(2) - 2, "pub"));
                for (path, name) in expand(&tokens[place + 1..end]) {
                    let Some(path) = from_root(&path, modules, scope) else { continue };
                    if is_public && scope == module {
                        self.names.insert(name, path.clone());
                    }
                    if !(is_public && self.hands_on) {
                        self.paths.push(path);
                    }
                }
                place = end + 1;
            } else if is(&tokens, place, "mod")
                && let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(group))) =
                    (tokens.get(place + 1), tokens.get(place + 2))
            {
                let scope = [scope.as_slice(), &[name.to_string()]].concat();
                self.read(group.stream(), module, modules, &scope);
                place += 3;
            } else if let TokenTree::Group(group) = &tokens[place] {
                self.read(group.stream(), module, modules, scope);
                place += 1;
            } else {
                let (path, end) = path_at(&tokens, place);
                let is_whole = place == 0 || !(is(&tokens, place - 1, ":") || is(&tokens, place - 1, "in"));
                if path.len() > 1 && is_whole {
                    self.paths.extend(from_root(&path, modules, scope));
                }
                place = end.max(place + 1);
            }
        }
    }
}

/// A path as it is written in `scope`, from the root of the crate; `None` if it is another
/// crate's.
fn from_root(path: &[String], modules: &BTreeSet<&Module>, scope: &Module) -> Option<Vec<String>> {
    let (mut base, mut rest) = (scope.clone(), path);
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Module::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {}
        first => {
            let below = [scope.as_slice(), &[first.to_owned()]].concat();
            return modules.contains(&below).then(|| [scope.as_slice(), rest].concat());
        }
    }
    while rest.first().is_some_and(|part| part == "super") {
        base.pop();
        rest = &rest[1..];
    }
    Some([base.as_slice(), rest].concat())
}

/// True if the token is this word or this sign.
fn is(tokens: &[TokenTree], place: usize, text: &str) -> bool {
    match tokens.get(place) {
        Some(TokenTree::Ident(word)) => *word == text,
        Some(TokenTree::Punct(sign)) => text.len() == 1 && text.starts_with(sign.as_char()),
        _ => false,
    }
}

/// `#[cfg(test)]`, alone or with more conditions.
fn is_of_tests(attribute: &Group) -> bool {
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Where the item ends that the attribute at `place` stands before.
fn item_end(tokens: &[TokenTree], mut place: usize) -> usize {
    while is(tokens, place, "#") {
        place += 2;
    }
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(sign) => sign.as_char() == ';',
        _ => false,
    };
    // `use a::{b, c};` has a brace before its end.
    let is_use = tokens[place..].iter().take(3).any(|token| matches!(token, TokenTree::Ident(word) if word == "use"));
    let ends = |place: &usize| if is_use { is(tokens, *place, ";") } else { is_end(&tokens[*place]) };
    (place..tokens.len()).find(ends).map_or(tokens.len(), |end| end + 1)
}

/// The path that begins at `place`, and where it ends; empty if none does.
fn path_at(tokens: &[TokenTree], mut place: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    while let Some(TokenTree::Ident(word)) = tokens.get(place) {
        path.push(word.to_string());
        place += 1;
        if !(is(tokens, place, ":") && is(tokens, place + 1, ":")) {
            break;
        }
        place += 2;
    }
    (path, place)
}

/// The paths of a `use`, and the names that they get.
fn expand(tokens: &[TokenTree]) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    for part in tokens.split(|token| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ',')) {
        let (path, end) = path_at(part, 0);
        match part.get(end) {
            Some(TokenTree::Group(group)) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                found.extend(expand(&inner).into_iter().map(|(rest, name)| match rest.first() {
                    Some(first) if first == "self" => (path.clone(), path.last().cloned().unwrap_or(name)),
                    _ => ([path.as_slice(), &rest].concat(), name),
                }));
            }
            _ => {
                let renamed =
                    is(part, end, "as").then(|| path_at(part, end + 1).0).and_then(|name| name.first().cloned());
                let name = renamed.or_else(|| path.last().cloned()).unwrap_or_default();
                found.push((path, name));
            }
        }
    }
    found
}
