//! Connections that are cut while clients write and while participants hold an office: the server lives, and
//! what was on its way is lost.

use std::sync::Arc;
use std::time::Duration;

use regent_stores::register::Register;

use crate::elections::elects_through;
use crate::judge::takes_nothing_back_through;
use crate::relay::Relay;
use crate::servers::Server;

/// How long nobody is let through.
const CUT_FOR: Duration = Duration::from_millis(500);

/// Cuts every connection to a server again and again, under writers first and then under elections.
pub(crate) async fn bears_cuts(
    store: &str,
    server: &mut Server,
    client: impl Fn(&str) -> Arc<dyn Register>,
) {
    let relay = Relay::before(&server.url).await;
    let cut = |_: &mut Server| {
        relay.cut();
        std::thread::sleep(CUT_FOR);
        relay.heal();
    };
    takes_nothing_back_through("cut", store, server, || client(&relay.url), cut).await;
    elects_through("cut", store, server, || client(&relay.url), cut).await;
}
