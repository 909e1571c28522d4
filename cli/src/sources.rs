//! The data sources of this machine, as `record` and `probes` offer them.

use watershed_client::DataSourceFactory;
use watershed_probes::{
    FtraceFactory, Notices, OnDemand, ProcessStatsFactory, Roots, ScanRequest, SysStatsFactory,
    SystemInfoFactory,
};

/// All of them. What they cannot do here goes to `notices`.
pub(crate) fn all(notices: &Notices, scan_request: &ScanRequest) -> Vec<Box<dyn DataSourceFactory>> {
    let on_demand = OnDemand::new();
    vec![
        Box::new(SysStatsFactory { roots: Roots::default(), notices: notices.clone() }),
        Box::new(ProcessStatsFactory {
            roots: Roots::default(),
            notices: notices.clone(),
            scan_request: scan_request.clone(),
            on_demand: on_demand.clone(),
        }),
        Box::new(SystemInfoFactory { roots: Roots::default(), notices: notices.clone() }),
        Box::new(FtraceFactory::new(Roots::default(), notices.clone(), on_demand)),
    ]
}

/// Their names.
pub(crate) fn names() -> Vec<String> {
    let all = all(&Notices::new(), &ScanRequest::new());
    all.iter().map(|factory| factory.descriptor().name().to_owned()).collect()
}
