//! Who may be at the other end (RFC 8446; names: RFC 6125 section 6.4, as subject alternative names).

use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

/// Certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct TermsError {
    what: &'static str,
    why: String,
}

/// What all connections of a node have in common.
#[derive(Debug, Clone)]
pub struct Terms {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Terms {
    /// Those of a node with this certificate and key, in PEM, which trusts certificates that one of
    /// `authorities` has signed.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn new(authorities: &[u8], certificate: &[u8], key: &[u8]) -> Result<Self, TermsError> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            let authority = authority.map_err(failed("reading the authority's certificate"))?;
            roots.add(authority).map_err(failed("using the authority's certificate"))?;
        }
        if roots.is_empty() {
            return Err(failed("reading the authority's certificate")("there is none"));
        }
        let roots = Arc::new(roots);
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(failed("reading the node's certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(failed("reading the node's key"))?;
        let versions = failed("choosing TLS 1.3");
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(versions)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(failed("using the node's certificate"))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(failed("choosing TLS 1.3"))?
            .with_client_cert_verifier(verifier.map_err(failed("using the authority's certificate"))?)
            .with_single_cert(chain, key)
            .map_err(failed("using the node's certificate"))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    /// The end of the one that connects to `node`.
    pub(super) fn client(&self, node: &str) -> Result<Connection, TermsError> {
        let name = ServerName::try_from(node.to_owned()).map_err(failed("using the node's name"))?;
        let made = ClientConnection::new(Arc::clone(&self.client), name).map_err(failed("beginning TLS"))?;
        Ok(made.into())
    }

    /// The end of the one that is connected to.
    pub(super) fn server(&self) -> Result<Connection, TermsError> {
        let made = ServerConnection::new(Arc::clone(&self.server)).map_err(failed("beginning TLS"))?;
        Ok(made.into())
    }
}

/// Whether the other end has shown a certificate for this name.
pub(super) fn is_certified(connection: &Connection, node: &str) -> Result<(), TermsError> {
    let what = "its certificate is not for the name that it gives";
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.ok_or_else(|| failed(what)("it has shown none"))?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(failed(what))?;
    let name = ServerName::try_from(node).map_err(failed(what))?;
    verify_server_name(&parsed, &name).map_err(failed(what))
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> TermsError {
    move |why| TermsError { what, why: why.to_string() }
}
