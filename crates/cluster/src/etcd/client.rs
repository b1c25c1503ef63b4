//! A client of one member of etcd: its calls, over gRPC.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::credentials::Credentials;
use super::wire::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse, WatchRequest, WatchResponse,
};

/// How long a member's host may take to take a connection.
const CONNECT: Duration = Duration::from_millis(300);
/// A connection on which nothing comes is tried so often, and given up after so long.
const ALIVE: Duration = Duration::from_millis(500);

/// A call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The member cannot be reached.
    #[error("{}", in_one_line(.0))]
    Transport(#[from] tonic::transport::Error),
    /// It has answered otherwise.
    #[error("{} ({:?})", .0.message(), .0.code())]
    Status(#[from] Box<Status>),
    /// It has ended the answer.
    #[error("it has ended the call")]
    Ended,
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

fn in_one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// A connection with one member; clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Client(Grpc<Channel>);

impl Client {
    pub(super) async fn connect(endpoint: &str, credentials: &Credentials) -> Result<Self, CallError> {
        let mut channel = Endpoint::from_shared(endpoint.to_owned())?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(ALIVE)
            .keep_alive_timeout(ALIVE)
            .keep_alive_while_idle(true);
        if endpoint.starts_with("https:") {
            let Credentials { ca, certificate, key } = credentials;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
            channel = channel.tls_config(tls.identity(Identity::from_pem(certificate, key)))?;
        }
        Ok(Self(Grpc::new(channel.connect().await?)))
    }

    pub(super) async fn range(self, range: RangeRequest) -> Result<RangeResponse, CallError> {
        self.unary("/etcdserverpb.KV/Range", range).await
    }

    pub(super) async fn txn(self, txn: TxnRequest) -> Result<TxnResponse, CallError> {
        self.unary("/etcdserverpb.KV/Txn", txn).await
    }

    pub(super) async fn grant(self, seconds: i64) -> Result<LeaseGrantResponse, CallError> {
        self.unary("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl: seconds }).await
    }

    /// Whether a lease was renewed; if not, there is none.
    pub(super) async fn renew(self, lease: i64) -> Result<bool, CallError> {
        let once = stream::once(std::future::ready(LeaseKeepAliveRequest { id: lease }));
        let mut answers: Streaming<LeaseKeepAliveResponse> =
            self.streaming("/etcdserverpb.Lease/LeaseKeepAlive", once).await?;
        let answer = answers.message().await?.ok_or(CallError::Ended)?;
        Ok(answer.ttl > 0)
    }

    pub(super) async fn watch(self, watch: WatchRequest) -> Result<Streaming<WatchResponse>, CallError> {
        // A watch ends with its request.
        let lasting = stream::once(std::future::ready(watch)).chain(stream::pending());
        self.streaming("/etcdserverpb.Watch/Watch", lasting).await
    }

    async fn unary<Q, A>(mut self, path: &'static str, question: Q) -> Result<A, CallError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.0.ready().await?;
        let answer = self.0.unary(request(question), PathAndQuery::from_static(path), ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }

    async fn streaming<Q, A>(
        mut self,
        path: &'static str,
        questions: impl stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, CallError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.0.ready().await?;
        let path = PathAndQuery::from_static(path);
        Ok(self.0.streaming(request(questions), path, ProstCodec::default()).await?.into_inner())
    }
}

/// A member without a leader says so instead of nothing.
fn request<T>(of: T) -> Request<T> {
    let mut request = Request::new(of);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}
