//! A filer and well-behaved clients for the tests.

use dafs_filer::*;
use dafs_ops::Fault;
use dafs_types::*;

pub(crate) const LATER: Moment = Moment(3_600_000_000_000);

pub(crate) fn open_for<'a>(file: u64, owner: &'a str, access: ShareAccess) -> OpenArguments<'a> {
    OpenArguments::plain(FileKey(file), owner.as_bytes(), access)
}

pub(crate) struct Bench {
    pub filer: Filer,
    /// True if the clients' state outlives their sessions.
    pub is_kept: bool,
    last_id: u64,
}

impl Bench {
    pub(crate) fn new(config: FilerConfig) -> Self {
        Self { filer: Filer::new(config, 0xabcdef).unwrap(), is_kept: false, last_id: 100 }
    }

    /// Adds a session of an anonymous client in its first incarnation.
    pub(crate) fn enter(&mut self, name: &str) -> Result<ClientKey, EnterError> {
        self.enter_again(name, 1)
    }

    /// Adds a session of an anonymous client in some incarnation.
    pub(crate) fn enter_again(&mut self, name: &str, life: u8) -> Result<ClientKey, EnterError> {
        let verifier = Verifier([life; 8]);
        let known = self.filer.id_of_incarnation(name.as_bytes(), verifier);
        self.last_id += 1;
        self.filer.client_enter(&EnteringClient {
            id: known.unwrap_or(ClientId(self.last_id)),
            name: name.as_bytes(),
            verifier,
            principal: &Principal::Anonymous,
            holder: Holder::Elsewhere,
            expects_record: known.is_some(),
            ends_reclaims_itself: false,
        })
    }

    /// Adds a session of a client whose incarnation has begun.
    pub(crate) fn session(&mut self, name: &str) -> ClientKey {
        let client = self.enter(name).unwrap();
        assert!(!self.filer.client_begin(client, Moment(0)).is_refused);
        client
    }

    pub(crate) fn id(&self, client: ClientKey) -> Option<ClientId> {
        self.filer.client_view(client).map(|view| view.id)
    }

    /// Drops a session as if its connection were lost. Returns the opens that ended.
    pub(crate) fn lose(&mut self, client: ClientKey) -> Vec<Closed> {
        let how = LeaveReason::Lost { is_kept: self.is_kept, has_replies: false };
        self.filer.client_leave(client, how, Moment(0))
    }

    pub(crate) fn open(
        &mut self,
        client: ClientKey,
        arguments: &OpenArguments<'_>,
    ) -> Result<Opened, Fault> {
        self.filer.open(client, arguments, Moment(0))
    }

    pub(crate) fn close(
        &mut self,
        client: ClientKey,
        state: StateId,
        file: FileKey,
    ) -> Result<Closed, Fault> {
        self.filer.close(client, state, file, Moment(0))
    }

    pub(crate) fn check_io(
        &mut self,
        client: ClientKey,
        state: StateId,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Fault> {
        self.filer.check_io(client, state, file, kind, Moment(0))
    }

    /// Checks that all gauges are zero when there is no client.
    pub(crate) fn assert_empty(&self) {
        let counters = self.filer.counters();
        let gauges = [counters.clients, counters.opens, counters.files];
        assert_eq!(gauges, [0; 3], "{counters:?}");
    }
}
