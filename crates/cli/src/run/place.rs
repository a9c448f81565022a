//! Where `regent run` holds its election: at a server, or on a store that others run, with nothing of
//! ours between.

use std::sync::Arc;
use std::time::Duration;

use regent::{Connect, Regent};
use regent_stores::register::RegisterError;
use regent_stores::{LeaseStore, open_register};

use super::args::RunArgs;
use crate::failure::Failure;
use crate::output::remark;
use crate::serve::{unfit, unopened};

/// How long a store may take to be examined. One that can be reached is done long before; whoever waited
/// less might start on a store that must be refused.
const EXAMINED_WITHIN: Duration = Duration::from_secs(10);

/// The session to be. What can never work is refused; what may come later is waited for.
pub(crate) async fn find(args: &RunArgs) -> Result<Connect, Failure> {
    match args.store.as_deref() {
        None => {
            args.client.is_regent().await?;
            Ok(Regent::at(args.client.url()?))
        }
        Some(_) if args.fence_previous.is_some() => Err(Failure::usage(
            "--fence-previous asks who led before, and a store that is used directly keeps no \
             history; run `regent serve --store` beside it and name that with --server",
        )),
        Some(url) => {
            if args.client.is_named() {
                remark("warning: --server is not used, because --store names another place");
            }
            open(url).await
        }
    }
}

/// A store that others run. One of this process alone would elect everybody who asks it.
async fn open(url: &str) -> Result<Connect, Failure> {
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
    Ok(Regent::over(Arc::new(LeaseStore::new(register))))
}
