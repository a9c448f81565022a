//! A build without TLS: nobody has one of these.

use std::convert::Infallible;
use std::io;

use tokio::net::TcpStream;

use super::UpstreamError;

/// How TLS is spoken: not at all.
#[derive(Debug)]
pub(super) struct Tls(Infallible);

impl Tls {
    pub(super) const fn to(_: &str) -> Result<Self, UpstreamError> {
        Err(UpstreamError::NoTls)
    }

    pub(super) async fn speak(&self, _: TcpStream) -> io::Result<TcpStream> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_that_is_not_built_in_is_refused_with_the_way_out() {
        let error = Tls::to("x").unwrap_err();
        assert!(error.to_string().contains("\"tls\""), "{error}");
    }
}
