//! The control socket: a request is a line of JSON; the answer is JSON Lines. Others may follow on the same
//! connection.
//!
//! ```text
//! client:  {"command":"sessions","filter":{"protocol":"tcp"}}
//! gateway: {"service":"nat64","protocol":"tcp","inside":"2001:db8:1::2",...}     a row, as often as there are any
//!          {"end":{"rows":1}}                                                    all rows were sent
//!          {"error":"...","code":"refused"}                                      or why not
//! ```
//!
//! An answer is made while the tables are read, a piece at a time, on a thread of its own with low
//! priority: it takes constant memory however many rows there are, and no packet waits for it. So
//! it is no snapshot: what changes meanwhile is in it or not.
//!
//! * [`locate`]: which gateway of this host is meant.
//! * [`request`]: what may be asked. `lines`: one request after the other.
//! * [`filter`]: which rows are wanted.
//! * [`answer`]: the gateway's side. `status`, `tables`, `pools`, `counters`, `fastpath`, `peers`, `subscriber`, [`explain`] and [`who`]
//!   make the rows of its answers; `trace` and `events` as long as somebody reads; `rows` sends them.
//! * [`client`]: the other side.

pub mod answer;
pub mod client;
mod counters;
mod events;
pub mod explain;
mod fastpath;
pub mod filter;
mod lines;
pub mod locate;
mod peers;
pub(crate) mod pools;
pub mod request;
mod rows;
mod slices;
mod status;
pub(crate) mod subscriber;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod trace;
pub mod who;
