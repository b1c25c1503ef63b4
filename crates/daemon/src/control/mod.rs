//! The control socket: one request a connection, as a line of JSON; the answer as JSON Lines.
//!
//! ```text
//! client:  {"command":"sessions","filter":{"protocol":"tcp"}}
//! gateway: {"service":"nat64","protocol":"tcp","inside":"2001:db8:1::2",...}     a row, as often as there are any
//!          {"end":{"rows":1}}                                                    all rows were sent
//!          {"error":"..."}                                                       or why not
//! ```
//!
//! An answer is made while the tables are read, a piece at a time, on a thread of its own with low
//! priority: it takes constant memory however many rows there are, and no packet waits for it. So
//! it is no snapshot: what changes meanwhile is in it or not.
//!
//! * [`place`]: where the socket is, and which gateways run on this host.
//! * [`request`]: what may be asked.
//! * [`filter`]: which rows are wanted.
//! * [`answer`]: the gateway's side.
//! * [`client`]: the other side.

pub mod answer;
pub mod client;
mod fast;
pub mod filter;
pub mod place;
pub mod request;
mod state;
mod who;
