//! Tokens of other issuers (JSON Web Tokens), if this program was built to judge them.

#[cfg(feature = "jwt")]
pub(crate) use built_in::{Issuers, keep_fresh};
#[cfg(not(feature = "jwt"))]
pub(crate) use left_out::{Issuers, keep_fresh};

#[cfg(feature = "jwt")]
mod built_in {
    use std::path::Path;
    use std::sync::Arc;

    use regent_election::access::{Caller, CredentialFlaw, Principal, Voucher};
    use regent_jwt::{Believed, SignedBy, Verified};

    use crate::app::App;
    use crate::auth::wall_ms;

    /// Whose tokens are believed, and by which keys.
    #[derive(Debug)]
    pub(crate) struct Issuers(Believed);

    /// A token that was believed: it is good until it is over or its issuer withdraws the key, and as long as
    /// whatever else the caller has shown.
    #[derive(Debug)]
    struct JwtVoucher {
        verified: Verified,
        signed_by: SignedBy,
        certificate: Option<Arc<dyn Voucher>>,
    }

    impl Voucher for JwtVoucher {
        fn who(&self) -> &Principal {
            &self.verified.who
        }

        fn flaw(&self) -> Option<CredentialFlaw> {
            if wall_ms() >= self.verified.expires_at_ms {
                return Some(CredentialFlaw::Expired);
            }
            if !self.signed_by.is_kept() {
                return Some(CredentialFlaw::Revoked);
            }
            self.certificate.as_ref().and_then(|certificate| certificate.flaw())
        }
    }

    impl Issuers {
        pub(crate) fn open(path: &Path) -> Result<Self, String> {
            Believed::open(path).map(Self).map_err(|error| error.to_string())
        }

        /// The caller that a token names. Whether the token is over is judged with every request: its bearer may
        /// still give up what it holds.
        pub(crate) async fn identify(
            &self,
            token: &str,
            certificate: Option<Arc<dyn Voucher>>,
        ) -> Result<Caller, String> {
            let verified = self.0.identify(token, wall_ms() / 1000).await;
            let (verified, signed_by) =
                verified.map_err(|why| format!("the token is not believed: {why}"))?;
            let who = verified.who.clone();
            let voucher: Arc<dyn Voucher> =
                Arc::new(JwtVoucher { verified, signed_by, certificate });
            Ok(Caller { who, token: None, voucher: Some(voucher), wall_ms })
        }
    }

    /// Reads the keys of issuers again, for as long as the server runs.
    pub(crate) async fn keep_fresh(app: Arc<App>) {
        if let Some(issuers) = &app.issuers {
            issuers.0.keep_fresh().await;
        }
    }
}

#[cfg(not(feature = "jwt"))]
mod left_out {
    use std::path::Path;
    use std::sync::Arc;

    use regent_election::access::{Caller, Voucher};

    use crate::app::App;

    /// None: this program cannot judge their tokens.
    #[derive(Debug)]
    pub(crate) enum Issuers {}

    impl Issuers {
        pub(crate) fn open(_: &Path) -> Result<Self, String> {
            Err("this program was built without JSON Web Tokens; build it with --features jwt"
                .into())
        }

        pub(crate) async fn identify(
            &self,
            _: &str,
            _: Option<Arc<dyn Voucher>>,
        ) -> Result<Caller, String> {
            match *self {}
        }
    }

    pub(crate) async fn keep_fresh(_: Arc<App>) {}
}
