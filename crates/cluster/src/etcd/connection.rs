//! The connection with etcd: one of its members at a time, and the next one when that is silent.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::timeout;

use super::client::{CallError, Client};
use super::credentials::Credentials;

/// Where etcd is, and how one is known there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    /// Addresses of its members, as `https://[2001:db8::1]:2379`; at least one.
    pub endpoints: Vec<String>,
    /// For members that are spoken to by TLS.
    pub credentials: Credentials,
    /// The name of the cluster of gateways: what its keys begin with.
    pub cluster: String,
}

/// A call came to nothing. Unless it says otherwise, nobody knows whether it was carried out.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No answer in time.
    #[error("etcd at {endpoint} says nothing for {} ms", limit.as_millis())]
    Silent {
        /// Who was asked.
        endpoint: String,
        /// How long was waited.
        limit: Duration,
    },
    /// Another answer than one hoped for, or the connection broke.
    #[error("etcd at {endpoint}: {error}")]
    Call {
        /// Who was asked.
        endpoint: String,
        /// What was said.
        error: CallError,
    },
    /// No address is named.
    #[error("no address of etcd is named")]
    Nowhere,
}

/// The connection, for the tasks of one thread.
pub(super) struct Connection {
    etcd: Etcd,
    /// Called whenever a member says what it can say only while most members are there.
    heard: Box<dyn Fn()>,
    /// Which endpoint is asked.
    place: Cell<usize>,
    client: RefCell<Option<Client>>,
}

impl Connection {
    pub(super) fn new(etcd: Etcd, heard: impl Fn() + 'static) -> Self {
        Self { etcd, heard: Box::new(heard), place: Cell::new(0), client: RefCell::new(None) }
    }

    /// A member has said something unasked.
    pub(super) fn hear(&self) {
        (self.heard)();
    }

    /// Asks the member at hand. One that does not answer as hoped for within `limit` is not asked again before the others.
    pub(super) async fn call<T>(
        &self,
        limit: Duration,
        ask: impl AsyncFnOnce(Client) -> Result<T, CallError>,
    ) -> Result<T, EtcdError> {
        let place = self.place.get();
        let endpoint = self.etcd.endpoints.get(place).ok_or(EtcdError::Nowhere)?.clone();
        let answer = timeout(limit, async { ask(self.client(&endpoint).await?).await }).await;
        if !matches!(answer, Ok(Ok(_))) {
            self.leave(place);
        }
        match answer {
            Ok(Ok(answer)) => {
                self.hear();
                Ok(answer)
            }
            Ok(Err(error)) => Err(EtcdError::Call { endpoint, error }),
            Err(_) => Err(EtcdError::Silent { endpoint, limit }),
        }
    }

    async fn client(&self, endpoint: &str) -> Result<Client, CallError> {
        if let Some(client) = &*self.client.borrow() {
            return Ok(client.clone());
        }
        let client = Client::connect(endpoint, &self.etcd.credentials).await?;
        Ok(self.client.borrow_mut().insert(client).clone())
    }

    /// The next member is asked from now on, unless another task has seen to that.
    fn leave(&self, place: usize) {
        if self.place.get() == place {
            self.place.set((place + 1) % self.etcd.endpoints.len().max(1));
            self.client.replace(None);
        }
    }
}
