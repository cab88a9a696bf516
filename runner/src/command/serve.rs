//! `modelfarm serve`.

use modelfarm_reports::server::{self, ServerOptions};
use modelfarm_reports::store::Store;
use tokio::signal::unix::{SignalKind, signal};

use super::Farm;
use crate::exit::{ExitCode, Failure};
use crate::progress;

/// Serves the results until a signal ends it; never creates, migrates or changes the database.
pub async fn serve(farm: &Farm, options: &ServerOptions) -> Result<ExitCode, Failure> {
    // Before anybody is told that it serves: a signal from then on ends it in order.
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return Err(Failure::to("wait for signals: the system does not let this process handle any"));
    };
    let store = Store::open_read_only(&farm.database).await?;
    let server = server::serve(store, options).await.map_err(Failure::to)?;
    if options.is_public() {
        progress::line(&format!(
            "warning: whoever reaches {} can read every result: there is no password. Without --listen only this machine can",
            options.listen
        ));
    }
    progress::line(&format!("serving the results on {} (Ctrl-C ends it)", server.url()));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    server.shutdown().await;
    Ok(ExitCode::Fine)
}
