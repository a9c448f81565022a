//! What an operator does next with a certificate that was made.

use std::path::Path;

use crate::authority::{Made, Subject};

impl Made {
    /// The files, for how long they are good, and how they are used; `expires_at` is the end as people write it.
    #[must_use]
    pub fn guide(&self, is_renewed: bool, now_s: u64, expires_at: &str) -> String {
        let [certificate, key, ca] =
            [&self.certificate, &self.key, &self.ca].map(|path| path.display());
        let days = self.expires_at_s.saturating_sub(now_s) / (24 * 3600);
        let Some(subject) = &self.subject else {
            return format!(
                "{certificate}  certificate of the CA, good for {days} days (until {expires_at})\n\
                 {key}  key of the CA: keep it here, never on a server\n\n\
                 next, for every replica, server or client:\n  \
                 regent tls issue --dir DIR --replica ID --cluster CLUSTER\n  \
                 regent tls issue --dir DIR --server HOST,…\n  \
                 regent tls issue --dir DIR --node NAME --cluster CLUSTER"
            );
        };
        let about = format!(
            "{certificate}  certificate of {subject}, good for {days} days (until {expires_at})"
        );
        let its_key = format!("{key}  its key: for its owner only");
        match (is_renewed, self.is_key_new) {
            (false, _) => format!(
                "{about}\n{its_key}\n\n\
                 copy both and {ca} to where they are used, the key readable by its user only; there:\n  {}",
                usage(subject, &self.certificate)
            ),
            (true, true) => format!(
                "{about}\n{its_key}\n\n\
                 copy both over the old ones; a server reads them within 10 s, or on SIGHUP"
            ),
            (true, false) => format!(
                "{about}\n\n\
                 copy it over the old one; a server reads it within 10 s, or on SIGHUP"
            ),
        }
    }
}

/// How a certificate is used where it was copied to.
fn usage(subject: &Subject, certificate: &Path) -> String {
    let stem = certificate.file_stem().unwrap_or_default().to_string_lossy();
    match subject {
        Subject::Replica(_) => {
            format!("regent serve --peer-cert {stem}.crt --peer-key {stem}.key --peer-ca ca.crt …")
        }
        Subject::Server(_) => {
            format!("regent serve --tls-cert {stem}.crt --tls-key {stem}.key …")
        }
        Subject::Node { .. } | Subject::User { .. } => {
            format!("regent … --ca ca.crt --cert {stem}.crt --cert-key {stem}.key")
        }
    }
}
