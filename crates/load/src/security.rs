//! What security costs: the same requests to a server that lets everybody in and to servers that do not, in turns.
//!
//! Three servers of one node run at once, each with real files and syncs: one in the clear without authentication, one with
//! tokens and authorisation, one with client certificates over TLS and authorisation. Clients keep their connections, so
//! handshakes are no part of it; each of 16 nodes has a credential of its own and stands under its own name. Turns
//! alternate, and while one server is asked the others are idle: on a shared machine one minute is not like the next.
//!
//! CPU is compared, of the server and of this process (the clients), which is rustls there as well. The ratio is that of
//! each turn to the turn in the clear beside it; the median of these counts.

use serde::Serialize;

use crate::closed_loop::{Client, ENTERING_MAX, Work, group, unasked};
use crate::door::{Door, node_of};
use crate::error::LoadError;
use crate::gateway::{Spread, spread};
use crate::servers::Servers;
use crate::usage::Processes;
use crate::wire::Wire;
use crate::{Bench, ClientTarget, LoadPlan, LoadProgress, Tell};

/// Turns of each kind of work at each server. The first one warms up what is to be warm, and is not counted.
const TURNS: usize = 5;

/// What is asked; the last one needs no authorisation, so it tells what TLS costs alone.
const WORKS: [Work; 5] = [Work::Heartbeat, Work::Renew, Work::Tenure, Work::Read, Work::Nothing];

/// What one kind of work costs at one door.
#[derive(Clone, Debug, Serialize)]
pub struct SecurityCost {
    pub work: Work,
    pub clients: usize,
    /// `plain`; `tokens`: authorisation without TLS; `mtls`: client certificates and authorisation.
    pub door: &'static str,
    pub operations: u64,
    pub failures: u64,
    /// CPU of the server's process per operation.
    pub server_cpu_us: Spread,
    /// CPU of the clients, all of which are this process, per operation.
    pub client_cpu_us: Spread,
    /// The server's CPU for that of the plain one in the same turn.
    pub server_ratio: Spread,
    pub client_ratio: Spread,
}

/// One turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    operations: u64,
    failures: u64,
    server_cpu_us: f64,
    client_cpu_us: f64,
}

/// A server and its clients.
struct Site<'a> {
    door: Door,
    servers: Servers,
    bench: Bench<'a>,
    clients: Vec<Client>,
}

/// Measures all doors with each number of clients.
pub(crate) async fn measure(plan: &LoadPlan, tell: Tell) -> Result<Vec<SecurityCost>, LoadError> {
    let mut sites = Vec::new();
    for door in Door::ALL {
        tell(LoadProgress::Step(&format!("a server starts: {}", door.word())));
        let servers = Servers::start(&plan.program, 1, door, plan.dir.as_deref(), tell).await?;
        let bench = Bench::new(plan, servers.urls(), Processes::of(servers.pids()), tell)?;
        sites.push(Site { door, servers, bench, clients: Vec::new() });
    }
    let mut costs = Vec::new();
    for &count in &plan.clients {
        for site in &mut sites {
            site.enter(count).await?;
        }
        for work in WORKS {
            let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); sites.len()];
            for number in 0..=TURNS {
                tell(LoadProgress::Step(&format!("{count} clients: {work}, turn {number}")));
                // None of them is always the first one.
                for nth in 0..sites.len() {
                    let at = (number + nth) % sites.len();
                    let turn = sites[at].turn(work).await?;
                    if number > 0 {
                        turns[at].push(turn);
                    }
                }
            }
            let plain = turns[0].clone();
            costs.extend(
                sites.iter().zip(&turns).map(|(it, own)| cost(work, count, it.door, own, &plain)),
            );
        }
    }
    Ok(costs)
}

impl Site<'_> {
    /// Connects this many clients, each of which leads one group.
    async fn enter(&mut self, count: usize) -> Result<(), LoadError> {
        self.bench.tell(&format!("{count} clients get ready: {}", self.door.word()));
        // Those of the number before leave, so that connections are as many as are said.
        self.clients.clear();
        let address = self.servers.urls()[0].parse()?;
        let mut starting = tokio::task::JoinSet::<Result<Client, LoadError>>::new();
        for number in 0..count {
            while starting.len() >= ENTERING_MAX
                && let Some(client) = starting.join_next().await
            {
                self.clients.push(client??);
            }
            let (node, shown) = (node_of(number)?, self.servers.shown(number));
            let group = group(&format!("bench/{count}/{number}"))?;
            let address = regent::remote::Address::clone(&address);
            starting.spawn(async move {
                let wire = Wire::connect_as(&address, &shown).await.map_err(unasked)?;
                Client::enter_by(wire, node, group).await
            });
        }
        while let Some(client) = starting.join_next().await {
            self.clients.push(client??);
        }
        Ok(())
    }

    async fn turn(&mut self, work: Work) -> Result<Turn, LoadError> {
        self.bench.calm_down().await?;
        let own = Processes::of(vec![std::process::id()]);
        let before = own.cpu_us()?;
        let clients = std::mem::take(&mut self.clients);
        let (row, clients) = self.bench.work(work, ClientTarget::Spread, clients).await?;
        self.clients = clients;
        let client_cpu_us = (own.cpu_us()? - before) as f64 / row.operations.max(1) as f64;
        Ok(Turn {
            operations: row.operations,
            failures: row.failures,
            server_cpu_us: row.server_cpu_us.unwrap_or_default(),
            client_cpu_us,
        })
    }
}

/// What these turns say, beside those in the clear.
fn cost(work: Work, clients: usize, door: Door, own: &[Turn], plain: &[Turn]) -> SecurityCost {
    let of = |number: fn(&Turn) -> f64| spread(own.iter().map(number).collect());
    let ratio = |number: fn(&Turn) -> f64| {
        let pairs = own.iter().zip(plain).map(|(one, other)| number(one) / number(other));
        spread(pairs.collect())
    };
    SecurityCost {
        work,
        clients,
        door: door.word(),
        operations: own.iter().map(|turn| turn.operations).sum(),
        failures: own.iter().map(|turn| turn.failures).sum(),
        server_cpu_us: of(|turn| turn.server_cpu_us),
        client_cpu_us: of(|turn| turn.client_cpu_us),
        server_ratio: ratio(|turn| turn.server_cpu_us),
        client_ratio: ratio(|turn| turn.client_cpu_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_each_turn_to_the_plain_one_beside_it() {
        let turn = |us: f64| Turn {
            operations: 10,
            failures: 1,
            server_cpu_us: us,
            client_cpu_us: 2.0 * us,
        };
        // The machine was slow in the second turn, for both.
        let (plain, own) = ([turn(10.0), turn(30.0), turn(10.0)], [12.0, 33.0, 11.0].map(turn));
        let cost = cost(Work::Read, 4, Door::Certificates, &own, &plain);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(near(cost.server_ratio.median, 1.1) && near(cost.server_ratio.largest, 1.2));
        assert!(near(cost.client_ratio.smallest, 1.1));
        assert_eq!((cost.operations, cost.failures, cost.door), (30, 3, "mtls"));
    }
}
