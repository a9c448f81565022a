//! Which answers, refusals, causes and ends of waits the random sequences have come to.

use std::collections::BTreeMap;

use regent_election::{Answer, Applied, Cause, Command, Entry, Refusal};

/// How often each was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach(BTreeMap<String, u64>);

impl Reach {
    pub(crate) fn note(&mut self, entry: &Entry, applied: &Applied) {
        let answer = match &applied.answer {
            Ok(answer) => said(answer),
            Err(refusal) => refused(refusal),
        };
        self.count(answer);
        for event in &applied.events {
            self.count(event.cause.word());
        }
        if let (Command::Elapsed { kind, .. }, Ok(Answer::Done)) = (&entry.command, &applied.answer)
        {
            self.count(&format!("{kind:?} elapsed"));
        }
    }

    fn count(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what.clone()).or_default() += count;
        }
    }

    /// What random sequences should come to and did not.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let causes = Cause::ALL.iter().map(|cause| cause.word());
        let others = [
            "session",
            "elected",
            "standing",
            "lost",
            "done",
            "ending",
            "forced",
            "overtaken",
            "SessionUnknown",
            "SessionMismatch",
            "NotLeader",
            "TenureEnding",
            "TtlOutOfBounds",
            "NotAllowed",
            "GroupUnknown",
            "GroupEnding",
            "NobodyLeads",
            "Full",
            "SuccessorUnknown",
            "SuccessorAmbiguous",
            "SuccessorSilent",
            "NoOffer",
            "RequestAhead",
            "RequestReused",
            "Policy",
            "Moved",
            "OnItsWay",
            "NotExpected",
            "Stopped",
            "StillLed",
            "StaleTerm",
            "NeverGranted",
            "FenceUnknown",
            "LockDelay elapsed",
            "Ending elapsed",
            "Acceptance elapsed",
            "MinimumTenure elapsed",
        ];
        causes.chain(others).filter(|what| !self.0.contains_key(*what)).collect()
    }
}

fn said(answer: &Answer) -> &'static str {
    match answer {
        Answer::Session { .. } => "session",
        Answer::Elected { .. } => "elected",
        Answer::Standing { .. } => "standing",
        Answer::Lost => "lost",
        Answer::Done => "done",
        Answer::Ending { .. } => "ending",
        Answer::Forced { .. } => "forced",
        Answer::Overtaken => "overtaken",
    }
}

fn refused(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::SessionUnknown => "SessionUnknown",
        Refusal::SessionMismatch => "SessionMismatch",
        Refusal::HeartbeatNotNewer { .. } => "HeartbeatNotNewer",
        Refusal::NotLeader { .. } => "NotLeader",
        Refusal::TenureEnding { .. } => "TenureEnding",
        Refusal::TtlOutOfBounds { .. } => "TtlOutOfBounds",
        Refusal::NotAllowed { .. } => "NotAllowed",
        Refusal::GroupUnknown { .. } => "GroupUnknown",
        Refusal::GroupEnding { .. } => "GroupEnding",
        Refusal::Moved { .. } => "Moved",
        Refusal::OnItsWay { .. } => "OnItsWay",
        Refusal::NotExpected { .. } => "NotExpected",
        Refusal::Stopped { .. } => "Stopped",
        Refusal::StillLed { .. } => "StillLed",
        Refusal::TermTooHigh { .. } => "TermTooHigh",
        Refusal::StaleTerm { .. } => "StaleTerm",
        Refusal::NeverGranted { .. } => "NeverGranted",
        Refusal::TermOver { .. } => "TermOver",
        Refusal::FenceUnknown { .. } => "FenceUnknown",
        Refusal::NobodyLeads { .. } => "NobodyLeads",
        Refusal::Full { .. } => "Full",
        Refusal::StateFull { .. } => "StateFull",
        Refusal::ShareFull { .. } => "ShareFull",
        Refusal::SuccessorUnknown { .. } => "SuccessorUnknown",
        Refusal::SuccessorAmbiguous { .. } => "SuccessorAmbiguous",
        Refusal::SuccessorSilent { .. } => "SuccessorSilent",
        Refusal::NoOffer { .. } => "NoOffer",
        Refusal::RequestTooOld { .. } => "RequestTooOld",
        Refusal::RequestAhead { .. } => "RequestAhead",
        Refusal::RequestReused => "RequestReused",
        Refusal::Policy(_) => "Policy",
        Refusal::TermsExhausted { .. } => "TermsExhausted",
        Refusal::Denied { .. } => "Denied",
        Refusal::Unauthenticated { .. } => "Unauthenticated",
        Refusal::SessionOfAnother => "SessionOfAnother",
        Refusal::CredentialOver { .. } => "CredentialOver",
        Refusal::BindingsChanged { .. } => "BindingsChanged",
        Refusal::Access(_) => "Access",
        Refusal::TokenUnknown { .. } => "TokenUnknown",
        Refusal::TokenExists { .. } => "TokenExists",
        Refusal::SecondApprovalNeeded { .. } => "SecondApprovalNeeded",
        Refusal::NobodyToApprove { .. } => "NobodyToApprove",
    }
}
