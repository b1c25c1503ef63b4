//! What a customer's edge goes by: native IPv4, names of far ends, interface identifiers of a draft.

use tombolo_config::Configuration;
use tombolo_engine::plan::{ServiceKind, Standby};

mod reading;

use reading::{accepted, refused};

const B4: &str = "[[service]]\nkind = \"b4\"\ninside = [\"10.0.0.0/24\"]\naddress = \"2001:db8:1::b4\"\n";
const CLAT: &str = "[[service]]\nkind = \"clat\"\nprefix = \"64:ff9b::/96\"\n\
                    eam = [{ ipv4 = \"192.0.0.1\", ipv6 = \"2001:db8:464::1\" }]\n";
const MAP_E: &str = "[[service]]\nkind = \"map-e\"\nbr = \"2001:db8:ffff::1\"\n\
                     rules = [{ ipv6 = \"2001:db8::/40\", ipv4 = \"192.0.2.0/24\", ea_bits = 16 }]\n";

fn standby(configuration: &Configuration) -> Vec<Standby> {
    configuration.plan.services.iter().map(|service| service.standby).collect()
}

#[test]
fn a_customers_edge_may_stand_by_and_a_nat44_in_front_of_it_does_as_well() {
    let nat44 = |pool: &str| {
        format!(
            "[[service]]\nkind = \"nat44\"\ninside = [\"10.0.0.0/24\"]\npool = [{{ addresses = \"{pool}\" }}]\n\n{CLAT}"
        )
    };
    let prefers = "native_ipv4 = \"preferred\"\n";
    assert_eq!(standby(&accepted(&nat44("192.0.0.1"))), [Standby::Never; 2]);
    assert_eq!(standby(&accepted(&(nat44("192.0.0.1") + prefers))), [Standby::Active; 2]);
    // One that has addresses of its own serves on.
    assert_eq!(standby(&accepted(&(nat44("192.0.2.1") + prefers))), [Standby::Never, Standby::Active]);
    let ignores = "native_ipv4 = \"ignored\"\n";
    assert_eq!(standby(&accepted(&(nat44("192.0.0.1") + ignores))), [Standby::Never; 2]);
}

#[test]
fn native_ipv4_is_nothing_to_the_providers_end() {
    let siit = "[[service]]\nkind = \"siit\"\nprefix = \"2001:db8:64::/96\"\nnative_ipv4 = \"preferred\"\n";
    let relay = format!("{MAP_E}role = \"br\"\nnative_ipv4 = \"preferred\"\n");
    for text in [siit, relay.as_str()] {
        let problems = refused(text).concat();
        assert!(problems.contains("service[0].native_ipv4") && problems.contains("the provider's end"), "{problems}");
    }
    let problems = refused(&format!("{CLAT}native_ipv4 = \"maybe\"\n")).concat();
    assert!(problems.contains("\"ignored\"") && problems.contains("\"preferred\""), "{problems}");
}

#[test]
fn a_far_end_has_an_address_or_a_name() {
    let configuration = accepted(&format!("{B4}aftr = \"aftr.example.net\"\n"));
    let (name, ends) = configuration.plan.services[0].kind.named_end().expect("a name");
    assert_eq!((name.as_str(), ends.awaits_far_end()), ("aftr.example.net", true));
    let configuration = accepted(&format!("{B4}aftr = \"2001:db8:ffff::1\"\n"));
    assert!(configuration.plan.services[0].kind.named_end().is_none());
    for (aftr, why) in [
        ("192.0.2.1", "neither an IPv6 address nor a name"),
        ("aftr..net", "neither an IPv6 address nor a name"),
        ("fe80::1", "no softwire can end there"),
        ("2001:db8:1::b4", "this end's own address"),
    ] {
        let problems = refused(&format!("{B4}aftr = \"{aftr}\"\n")).concat();
        assert!(problems.contains("service[0].aftr") && problems.contains(why), "{problems}");
    }
}

#[test]
fn the_third_draft_of_map_e_has_another_interface_identifier() {
    let edge =
        format!("{MAP_E}role = \"ce\"\nend_user_prefix = \"2001:db8:12:3400::/56\"\ninside = [\"10.0.0.0/24\"]\n");
    let address = |text: &str| {
        let configuration = accepted(text);
        let ServiceKind::MapECe(ce) = &configuration.plan.services[0].kind else { panic!("no edge") };
        ce.edge.ce.address().to_string()
    };
    assert_eq!(address(&edge), "2001:db8:12:3400:0:c000:212:34");
    assert_eq!(address(&format!("{edge}draft = 3\n")), "2001:db8:12:3400:c0:2:1200:3400");
    let problems = refused(&format!("{edge}draft = 7\n")).concat();
    assert!(problems.contains("service[0].draft") && problems.contains("use 3, or remove the key"), "{problems}");
    let map_t = "[[service]]\nkind = \"map-t\"\nrole = \"br\"\ndmr = \"2001:db8:ffff::/64\"\nrules = []\ndraft = 3\n";
    assert!(refused(map_t).concat().contains("draft"));
}
