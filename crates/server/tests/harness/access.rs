//! A server whose callers are authenticated, principals of every role, and a reference that says who may do what (S11).

use regent_api::{Gate, Route};
use regent_election::access::{BearerToken, Binding, Role, SecretDigest, TokenId, TokenLabel};
use regent_election::store::NewToken;
use regent_server::{Auth, ServerConfig};
use regent_stores::MemoryStore;
use sha2::{Digest, Sha256};

use super::Server;

/// Who asks: a name, the role it is bound to, and in which groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Someone {
    pub(crate) name: &'static str,
    role: Option<Role>,
    groups: &'static str,
}

const fn bound(name: &'static str, role: Role, groups: &'static str) -> Someone {
    Someone { name, role: Some(role), groups }
}

pub(crate) const EVERYBODY: &[Someone] = &[
    bound("observer", Role::Observer, "mine/*"),
    bound("participant", Role::Participant, "mine/*"),
    bound("operator", Role::Operator, "mine/*"),
    bound("deputy", Role::Administrator, "mine/*"),
    bound("administrator", Role::Administrator, "*"),
    bound("onlooker", Role::Observer, "*"),
    Someone { name: "stranger", role: None, groups: "" },
];

/// Where a request reaches, as the reference sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    #[allow(dead_code, reason = "over gRPC the head names no group")]
    Group(&'static str),
    /// The request's head names no group: whoever has the right in some group gets past the door.
    Some,
}

/// The reference: which routes a principal gets past the door of. Written without anything that the server uses.
pub(crate) fn lets_in(someone: Someone, route: &Route, reach: Reach) -> bool {
    let rights: &[&str] = match someone.role {
        None => &[],
        Some(Role::Observer) => &["observe"],
        Some(Role::Participant) => &["observe", "stand"],
        Some(Role::Operator) => &["observe", "operate"],
        Some(Role::Administrator) => &["observe", "operate", "administer"],
    };
    let Gate::Needs(right) = route.gate else { return true };
    if ["resign", "withdraw", "closeSession"].contains(&route.id) {
        return true;
    }
    let is_everywhere = someone.groups == "*";
    let reaches = match reach {
        Reach::Group(group) => is_everywhere || group.starts_with("mine/"),
        Reach::Some => true,
    };
    let is_whole = !route.path.contains("{group}")
        && (["operate", "administer"].contains(&right.word()) || route.id == "metrics");
    rights.contains(&right.word()) && reaches && (!is_whole || is_everywhere)
}

/// The token of the principal at this place of the list.
pub(crate) fn token_of(number: usize) -> BearerToken {
    let number = u8::try_from(number).unwrap();
    BearerToken::new(TokenId(u64::from(number) + 1), [number + 1; 32])
}

/// A server whose callers are authenticated, with a token for everybody.
pub(crate) async fn guarded() -> Server {
    guarded_with(ServerConfig::default()).await
}

/// The same with other settings.
pub(crate) async fn guarded_with(config: ServerConfig) -> Server {
    guarded_on(MemoryStore::new().unwrap(), config).await
}

/// The same over a store that is as the test wants it.
pub(crate) async fn guarded_on(store: MemoryStore, config: ServerConfig) -> Server {
    let server = Server::on(store, ServerConfig { auth: Auth::Required, ..config }).await;
    let mut bindings = Vec::new();
    for (number, someone) in EVERYBODY.iter().enumerate() {
        let principal = format!("node:{}", someone.name);
        let token = token_of(number);
        let new = NewToken {
            token: token.id,
            digest: SecretDigest(Sha256::digest(token.secret()).into()),
            principal: principal.parse().unwrap(),
            expires_ms: None,
            label: TokenLabel::new("test").unwrap(),
        };
        server.store.create_token(new).await.unwrap();
        bindings.extend(someone.role.map(|role| Binding {
            who: principal.parse().unwrap(),
            role,
            groups: vec![someone.groups.parse().unwrap()],
            nodes: vec!["self".parse().unwrap()],
        }));
    }
    server.store.put_bindings(0, bindings).await.unwrap();
    server
}

/// The principal of this name, and its token.
pub(crate) fn find(name: &str) -> String {
    let number = EVERYBODY.iter().position(|someone| someone.name == name).unwrap();
    token_of(number).reveal()
}
