//! The flag that helps after a refusal, for the end of a message.

use regent_api::{Code, Problem};

/// Refusals that a flag of the command can cure.
const WAYS_OUT: &[(Code, &str)] = &[
    (
        Code::Unauthenticated,
        "--token-file FILE shows a token, --cert FILE and --cert-key FILE a certificate",
    ),
    (Code::CredentialOver, "--token-file FILE shows another token"),
    (Code::Forbidden, "--token-file FILE or --context NAME asks as another principal"),
    (
        Code::NotAllowed,
        "--node NAME stands under another name, `regent group set GROUP --allow NODE` allows this one",
    ),
    (Code::TtlOutOfBounds, "--ttl DURATION asks for another one"),
];

/// The way out of a refusal, as a clause to be appended; empty if no flag helps.
#[must_use]
pub fn way_out(problem: &Problem) -> String {
    WAYS_OUT
        .iter()
        .find(|(code, _)| *code == problem.code)
        .map(|(_, way)| format!("; {way}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_a_flag_cures_names_the_flag_and_others_name_none() {
        let told = |code| way_out(&Problem::new(code, "no"));
        assert!(told(Code::Unauthenticated).contains("--token-file"));
        assert!(told(Code::TtlOutOfBounds).starts_with("; --ttl"));
        assert_eq!(told(Code::Full), "");
    }
}
