//! The BPF programs: found in the object, verified, attached to the ports; their arrays mapped.

use std::os::fd::AsFd;

use aya::Ebpf;
use aya::maps::{DevMap, Map, MapData};
use aya::programs::{RawTracePoint, Xdp, xdp::XdpMode};

use crate::error::{RigError, load_error};
use crate::mapped::Mapped;
use crate::namespace::in_namespace;
use crate::port::Port;
use tombolo_records::Plain;

fn xdp<'a>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, RigError> {
    let program = programs.program_mut(name).ok_or_else(|| RigError::Unfit(format!("the BPF object has no {name}")))?;
    program.try_into().map_err(load_error)
}

/// The program, verified by the kernel.
pub(crate) fn loaded<'a>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, RigError> {
    let program = xdp(programs, name)?;
    if program.fd().is_err() {
        program.load().map_err(load_error)?;
    }
    Ok(program)
}

/// Has what drivers do not take of live frames counted.
pub(crate) fn count_refused(programs: &mut Ebpf) -> Result<(), RigError> {
    let missing = || RigError::Unfit("the BPF object has no count_refused".to_owned());
    let program = programs.program_mut("count_refused").ok_or_else(missing)?;
    let program: &mut RawTracePoint = program.try_into().map_err(load_error)?;
    program.load().map_err(load_error)?;
    program.attach("xdp_devmap_xmit").map(drop).map_err(load_error)
}

/// Attaches a receiver to the port and enters the port into the device map; returns whether the
/// driver itself runs the receiver (native XDP).
pub(crate) fn connect(programs: &mut Ebpf, port: &Port, index: u32, receiver: &str) -> Result<bool, RigError> {
    let namespace = port.namespace.as_ref();
    let work = || connect_here(programs, port, index, receiver);
    in_namespace(namespace, work).map_err(|source| RigError::Namespace {
        path: namespace.map_or_else(String::new, |n| n.path().display().to_string()),
        source,
    })?
}

fn connect_here(programs: &mut Ebpf, port: &Port, index: u32, receiver: &str) -> Result<bool, RigError> {
    let missing = |_| RigError::NoInterface { name: port.name.clone(), namespace: port.namespace.clone() };
    let interface = nix::net::if_::if_nametoindex(port.name.as_str()).map_err(missing)?;
    let program = xdp(programs, receiver)?;
    program.load().map_err(load_error)?;
    let is_native = program.attach_to_if_index(interface, XdpMode::Driver).is_ok();
    if !is_native {
        program
            .attach_to_if_index(interface, XdpMode::Skb)
            .map_err(|source| RigError::Attach { name: port.name.clone(), source: Box::new(source) })?;
    }
    let map = programs.map_mut("ports").ok_or_else(|| RigError::Unfit("the BPF object has no ports".to_owned()))?;
    let mut ports: DevMap<&mut MapData> = map.try_into().map_err(load_error)?;
    ports.set(index, interface, None, 0).map_err(load_error)?;
    Ok(is_native)
}

pub(crate) fn map<T: Plain>(programs: &Ebpf, name: &'static str, len: usize) -> Result<Mapped<T>, RigError> {
    let Some(Map::Array(data)) = programs.map(name) else {
        return Err(RigError::Unfit(format!("the BPF object has no array {name}")));
    };
    Mapped::new(data.fd().as_fd(), len).map_err(|source| RigError::Map {
        map: name,
        bytes: len * size_of::<T>(),
        source,
    })
}

pub(crate) fn possible_cpus() -> usize {
    aya::util::nr_cpus().unwrap_or(1)
}
