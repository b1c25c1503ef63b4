//! By what rows and packets are asked for: service, protocol, addresses, port.

use clap::Args;

/// What is named has to hold, all of it.
#[derive(Debug, Clone, Args)]
pub(super) struct Named {
    /// Of this service
    #[arg(long, value_name = "NAME")]
    pub(super) service: Option<String>,
    /// Of this protocol: tcp, udp or icmp
    #[arg(long)]
    pub(super) protocol: Option<String>,
    /// With any address in this prefix
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    pub(super) address: Option<String>,
    /// With the address of the host inside, or of its softwire, in this prefix
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    pub(super) inside: Option<String>,
    /// With the outside address in this prefix
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    pub(super) outside: Option<String>,
    /// With the remote address in this prefix
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    pub(super) remote: Option<String>,
    /// With this port of any end, or identifier of ICMP
    #[arg(long)]
    pub(super) port: Option<u16>,
}
