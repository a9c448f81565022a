//! The operations that the table of routes lists.

use crate::route::Route;
use crate::routes::ROUTES;

/// What a route does. Matching on it in full is how the server knows that it forgot none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Wins a vacant office or says who holds it.
    Campaign,
    /// Keeps a session alive and proves a tenure.
    Renew,
    /// Gives an office up.
    Resign,
    /// Leaves the line or the office.
    Withdraw,
    /// A promoted standby accepts.
    Accept,
    /// A leader asks a standby to get warm.
    Offer,
    /// A standby says that it is warm.
    Warm,
    /// Hands an office over.
    Transfer,
    /// Says who leads.
    Leader,
    /// Watches one group.
    Watch,
    /// Watches many groups.
    WatchMany,
    /// An administrator ends a tenure.
    StepDown,
    /// One step of a group's move between two stores.
    MoveGroup,
    /// The last changes of a group.
    History,
    /// The current fencing token.
    Token,
    /// Judges a token, and raises a fence.
    ValidateToken,
    ListFences,
    /// Forgets a fence.
    DeleteFence,
    /// Who acts, as far as this server has heard.
    Claims,
    /// Creates a group or replaces its policy.
    PutGroup,
    /// Shows a group.
    ShowGroup,
    /// Deletes a group.
    DeleteGroup,
    ListGroups,
    /// Opens a session.
    OpenSession,
    /// Keeps a session alive.
    Heartbeat,
    /// Shows a session to its owner.
    ShowSession,
    /// Ends a session.
    CloseSession,
    /// Shows the replicas of our own store.
    ShowCluster,
    /// Takes a replica in as a learner.
    AddMember,
    /// Makes a learner a voter.
    PromoteMember,
    /// Removes a replica.
    RemoveMember,
    /// Hands the lead of the log over.
    TransferCluster,
    /// Everything that must outlive the machines, in one file.
    Backup,
    /// Shows who has which role where.
    ShowBindings,
    /// Replaces who has which role where.
    PutBindings,
    /// Shows which principals take most of the state.
    ShowUsage,
    /// Lists the tokens, without their secrets.
    ListAuthTokens,
    /// Makes a token.
    CreateAuthToken,
    /// Makes a token useless.
    RevokeAuthToken,
    /// The public keys that sign terms.
    Keys,
    /// Whether the process turns.
    Healthz,
    /// The same, by the name that Kubernetes uses.
    Livez,
    /// Whether the store serves.
    Readyz,
    /// Numbers for Prometheus.
    Metrics,
    /// This table as an OpenAPI document.
    OpenApi,
    /// A page for people.
    Dashboard,
}

impl Operation {
    /// Its row of the table.
    #[must_use]
    pub fn route(self) -> &'static Route {
        // The table has one row per operation in the same order; the compiler checked it.
        &ROUTES[self as usize]
    }
}
