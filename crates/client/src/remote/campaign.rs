//! Campaign: win a vacant office, or hear who holds it.

use std::time::Duration;

use regent_api::Operation;
use regent_api::limits::WAIT_MS_MAX;
use regent_api::{CampaignRequest, CampaignResponse};
use regent_election::Group;

use super::send::Call;
use super::{Remote, RemoteResult};

impl Remote {
    /// Campaigns once. Losing is an answer, not an error.
    ///
    /// If the outcome is uncertain, act on nothing and repeat it with the same session and request
    /// ids. The session's validity counts from when the *first* try was sent.
    pub async fn campaign(
        &self,
        group: &Group,
        request: &CampaignRequest,
    ) -> RemoteResult<CampaignResponse> {
        let waits = Duration::from_millis(request.wait_ms.unwrap_or(0).min(WAIT_MS_MAX));
        let path = Operation::Campaign.route().of_group(group);
        let call = Call::with_body(Operation::Campaign, path, request);
        let answer: CampaignResponse = self.call(call, waits).await?;
        self.note(answer.office.revision);
        Ok(answer)
    }
}
