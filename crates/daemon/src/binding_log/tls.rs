//! A collector's connection in TLS (RFC 5425): 1.2 or 1.3, by rustls.
//!
//! The collector is known by its name and the authority that has signed its certificate, or by the
//! certificate's fingerprint (RFC 5425 section 4.2.2). What is wrong with it is an error of the connection.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    StreamOwned,
};
use sha2::{Digest as _, Sha256};
use tombolo_config::{Identity, Tls, Trust};

/// How long is waited for a word that the collector refuses the gateway: in TLS 1.3 it comes behind the
/// handshake.
const REFUSAL: Duration = Duration::from_millis(200);

/// What connections to a collector have in common.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Terms {
    /// # Errors
    /// `InvalidInput`: a name, certificate or key that is none.
    pub(super) fn new(tls: &Tls) -> io::Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(invalid("choosing versions of TLS"))?;
        let builder = match &tls.trust {
            Trust::Roots(pem) => builder.with_root_certificates(roots(pem)?),
            Trust::Fingerprint(fingerprint) => {
                let pinned = Pinned { fingerprint: *fingerprint, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned))
            }
        };
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
                let chain = chain.map_err(invalid("reading the gateway's certificate"))?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(invalid("reading the gateway's key"))?;
                builder.with_client_auth_cert(chain, key).map_err(invalid("using the gateway's certificate"))?
            }
        };
        let name = ServerName::try_from(tls.name.clone()).map_err(invalid("reading the collector's name"))?;
        Ok(Self { config: Arc::new(config), name })
    }
}

/// Those that this library understands; a system's list may have others.
fn roots(pem: &[u8]) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
    if roots.is_empty() {
        return Err(invalid("reading the authorities")("there is no certificate of one"));
    }
    Ok(roots)
}

fn invalid<E: std::fmt::Display>(action: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| io::Error::new(io::ErrorKind::InvalidInput, format!("{action}: {error}"))
}

/// A connection.
#[derive(Debug)]
pub(super) struct Secured(StreamOwned<ClientConnection, TcpStream>);

impl Secured {
    /// Shakes hands over a connection, which has limits for its times.
    ///
    /// # Errors
    /// What the other side says, or what is wrong with its certificate.
    pub(super) fn open(stream: TcpStream, Terms { config, name }: &Terms) -> io::Result<Self> {
        let connection = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        let limit = stream.read_timeout()?;
        let mut secured = StreamOwned::new(connection, stream);
        while secured.conn.is_handshaking() {
            secured.conn.complete_io(&mut secured.sock)?;
        }
        secured.sock.set_read_timeout(Some(REFUSAL))?;
        let mut secured = Self(secured);
        secured.listen()?;
        secured.0.sock.set_read_timeout(limit)?;
        Ok(secured)
    }

    /// Sends all of it, unless the collector has said goodbye.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.sock.set_nonblocking(true)?;
        let heard = self.listen();
        self.0.sock.set_nonblocking(false)?;
        heard?;
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// Takes what the collector says beside, which syslog has no words for: tickets, and alerts.
    fn listen(&mut self) -> io::Result<()> {
        let mut word = [0; 64];
        loop {
            match self.0.read(&mut word) {
                Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(_) => {}
                Err(error) if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Trusts one certificate, whoever has signed it and for whatever name and time.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found: [u8; 32] = Sha256::digest(end_entity).into();
        if found == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
