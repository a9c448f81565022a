//! Tokens of other issuers (JSON Web Tokens), if this program was built to judge them.

#[cfg(feature = "jwt")]
pub(crate) use built_in::{Issuers, keep_fresh};
#[cfg(not(feature = "jwt"))]
pub(crate) use left_out::{Issuers, keep_fresh};

#[cfg(feature = "jwt")]
mod built_in {
    use std::path::Path;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use regent_election::access::{Caller, CredentialFlaw, Generations, Principal, Voucher};
    use regent_jwt::{Believed, SignedBy, Verified};
    use sha2::{Digest, Sha256};

    use crate::app::App;
    use crate::auth::wall_ms;
    use crate::limits::GOOD_TOKENS_MAX;

    /// Whose tokens are believed, and by which keys.
    #[derive(Debug)]
    pub(crate) struct Issuers {
        believed: Believed,
        /// Digests of tokens that were found good.
        good: Mutex<Generations<[u8; 32], ()>>,
    }

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
            let believed = Believed::open(path).map_err(|error| error.to_string())?;
            Ok(Self { believed, good: Mutex::new(Generations::new(GOOD_TOKENS_MAX)) })
        }

        /// Whether this very token was found good lately. It is judged again all the same.
        pub(crate) fn is_good(&self, token: &str) -> bool {
            self.good().get(Sha256::digest(token).into()).is_some()
        }

        fn good(&self) -> MutexGuard<'_, Generations<[u8; 32], ()>> {
            self.good.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// The caller that a token names. Whether the token is over is judged with every request: its bearer may
        /// still give up what it holds.
        pub(crate) async fn identify(
            &self,
            token: &str,
            certificate: Option<Arc<dyn Voucher>>,
        ) -> Result<Caller, String> {
            let verified = self.believed.identify(token, wall_ms() / 1000).await;
            let (verified, signed_by) =
                verified.map_err(|why| format!("the token is not believed: {why}"))?;
            self.good().insert(Sha256::digest(token).into(), ());
            let who = verified.who.clone();
            let voucher: Arc<dyn Voucher> =
                Arc::new(JwtVoucher { verified, signed_by, certificate });
            Ok(Caller { who, token: None, voucher: Some(voucher), wall_ms })
        }
    }

    /// Reads the keys of issuers again, for as long as the server runs.
    pub(crate) async fn keep_fresh(app: Arc<App>) {
        if let Some(issuers) = &app.issuers {
            issuers.believed.keep_fresh().await;
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

        pub(crate) fn is_good(&self, _: &str) -> bool {
            match *self {}
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
