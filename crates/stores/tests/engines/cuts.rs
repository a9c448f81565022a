//! Connections that are cut while clients write and while participants hold an office: the server lives, and
//! what was on its way is lost.

use std::sync::Arc;
use std::time::Duration;

use regent_stores::register::Register;

use crate::elections::elects_through;
use crate::judge::takes_nothing_back_through;
use crate::relay::Relay;
use regent_servers::Server;

/// How long nobody is let through.
const CUT_FOR: Duration = Duration::from_millis(500);

/// Cuts every connection to a server again and again, under writers first and then under elections.
pub(crate) async fn bears_cuts(
    store: &str,
    server: &mut Server,
    client: impl Fn(&str) -> Arc<dyn Register>,
) {
    let relay = Relay::before(&server.url).await;
    bears_cuts_of(&relay, store, server, || client(&relay.url)).await;
}

/// The same with a relay that stands already.
pub(crate) async fn bears_cuts_of(
    relay: &Relay,
    store: &str,
    server: &mut Server,
    client: impl Fn() -> Arc<dyn Register>,
) {
    let cut = |_: &mut Server| {
        relay.cut();
        std::thread::sleep(CUT_FOR);
        relay.heal();
    };
    takes_nothing_back_through("cut", store, server, &client, cut).await;
    elects_through("cut", store, server, &client, cut).await;
}
