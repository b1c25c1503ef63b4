//! What the tests of several files need.

use tombolo_engine::Plan;

/// A file with one NAT64 that is called `test`.
pub(crate) fn text() -> &'static str {
    "[capacity]\nsubscribers = 100\nbindings = 1000\nsessions = 1000\n[[service]]\nkind = \"nat64\"\n\
                name = \"test\"\nprefix = \"64:ff9b::/96\"\n\
                pool = [{ addresses = \"192.0.2.0/31\", ports = \"1024-65535\" }]\n\
                static = [{ inside = \"[2001:db8::2]:80\", outside = \"192.0.2.1:80\", protocol = \"tcp\" }]\n"
}

/// The plan of it.
pub(crate) fn plan() -> Plan {
    tombolo_config::parse("test.toml", text()).unwrap().plan
}
