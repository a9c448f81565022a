//! Where `regent run` holds its election: at a server, or on a store that others run, with nothing of
//! ours between.

use std::sync::Arc;
use std::time::Duration;

use regent::office::{DirectOffice, HttpOffice, Office, Sight, Sights};
use regent::remote::{Remote, RemoteError};
use regent::{Connect, Regent};
use regent_election::Group;
use regent_election::store::{Scope, Store};
use regent_stores::register::RegisterError;
use regent_stores::{LeaseStore, open_register};
use tokio::sync::mpsc;

use super::args::RunArgs;
use crate::failure::Failure;
use crate::output::remark;
use crate::serve::{unfit, unopened};

/// How long a server may take to say what it is.
const GREETING: Duration = Duration::from_secs(2);

/// How long a store may take to be examined. One that can be reached is done long before; whoever waited
/// less might start on a store that must be refused.
const EXAMINED_WITHIN: Duration = Duration::from_secs(10);

/// Where the election is held.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Server { remote: Remote, url: String },
    Store(Arc<dyn Store>),
}

impl Place {
    /// Finds it. What can never work is refused; what may come later is waited for.
    pub(crate) async fn find(args: &RunArgs) -> Result<Self, Failure> {
        match args.store.as_deref() {
            None => {
                let remote = args.client.remote()?;
                is_regent(&remote).await?;
                Ok(Self::Server { remote, url: args.client.url().to_owned() })
            }
            Some(_) if args.fence_previous.is_some() => Err(Failure::usage(
                "--fence-previous asks who led before, and a store that is used directly keeps no \
                 history; run `regent serve --store` beside it and name that with --server",
            )),
            Some(url) => {
                if !args.client.is_default() {
                    remark("warning: --server is not used, because --store names another place");
                }
                open(url).await
            }
        }
    }

    /// The session to be.
    pub(crate) fn connect(&self) -> Connect {
        match self {
            Self::Server { url, .. } => Regent::at(url),
            Self::Store(store) => Regent::over(Arc::clone(store)),
        }
    }

    /// Who leads the group, first as it is and then with every change; it ends if that can never be
    /// seen.
    pub(crate) fn watch(&self, group: Group) -> Result<mpsc::UnboundedReceiver<Sight>, Failure> {
        let office: Arc<dyn Office> = match self {
            Self::Server { remote, .. } => Arc::new(HttpOffice::new(remote.addresses(), GREETING)?),
            Self::Store(store) => Arc::new(DirectOffice::new(Arc::clone(store), GREETING)),
        };
        let (sights, seen) = Sights::channel();
        tokio::spawn(async move { office.watch(Scope::Group(group), sights).await });
        Ok(seen)
    }

    /// The server, if there is one.
    pub(crate) const fn server(&self) -> Option<&Remote> {
        match self {
            Self::Server { remote, .. } => Some(remote),
            Self::Store(_) => None,
        }
    }
}

/// A store that others run. One of this process alone would elect everybody who asks it.
async fn open(url: &str) -> Result<Place, Failure> {
    let register = open_register(url).map_err(unopened)?;
    let name = register.describe().name;
    match tokio::time::timeout(EXAMINED_WITHIN, register.examine()).await {
        Ok(Ok(warnings)) => warnings.iter().for_each(|warning| {
            remark(&format!("WARNING: {name} is weaker than it looks: {warning}"));
        }),
        Ok(Err(error @ RegisterError::Unfit { .. })) => return Err(unfit(&error)),
        Ok(Err(error)) => remark(&format!("WARNING: the store cannot be examined: {error}")),
        Err(_) => remark("WARNING: the store does not answer yet; it is waited for"),
    }
    Ok(Place::Store(Arc::new(LeaseStore::new(register))))
}

/// Refuses what is there and is no Regent: waiting would never help. A server that cannot be reached,
/// or does not say, is waited for.
async fn is_regent(remote: &Remote) -> Result<(), Failure> {
    match tokio::time::timeout(GREETING, remote.health()).await {
        Ok(Err(error @ RemoteError::Protocol { .. })) => {
            let addresses: Vec<_> = remote.addresses().iter().map(ToString::to_string).collect();
            Err(Failure::usage(format!("--server {}: {error}", addresses.join(","))))
        }
        Ok(Ok(_) | Err(_)) | Err(_) => Ok(()),
    }
}
