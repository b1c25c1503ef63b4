//! A build in which nobody speaks with etcd.

use std::sync::Arc;

use tombolo_config::Cluster;
use tombolo_engine::mapping::slices::Slicing;
use tombolo_io::worker::StopSignal;

use crate::error::DaemonError;
use crate::holdings::Holdings;
use crate::running::Running;

/// No threads.
#[derive(Debug)]
pub(crate) enum Ownership {}

/// No file that speaks of etcd can be followed.
pub(crate) fn slicing(cluster: &Cluster) -> Result<Option<Slicing>, DaemonError> {
    match cluster.etcd {
        None => Ok(None),
        Some(_) => Err(DaemonError::Failed(
            "cluster.etcd: this build does not speak with etcd; use one with the feature \"cluster\"".to_owned(),
        )),
    }
}

impl Ownership {
    pub(crate) fn start(_: &Arc<Running>, _: Option<&Holdings>, _: &StopSignal) -> Result<Option<Self>, DaemonError> {
        Ok(None)
    }

    pub(crate) fn join(self) {
        match self {}
    }
}
