//! Statistics of requests: their number, bytes and times, by procedure, session and transport.
//!
//! Invariants:
//! - A request is counted once, when credits are taken for its reply.
//! - Only the reactor accesses the counters; other threads get copies ([`crate::meter::inspect`]).
//!
//! Usually the overhead for a request is one or two additions, because the clock is not read for
//! every request. Of a frequent procedure, only one request in N is timed, and the measured time is
//! also counted for the requests since the previous timed request. N varies randomly, so that no
//! client can send its slow requests just when none is timed. A request that must wait is always
//! timed, from the start of its wait. While there are followers (receivers of records of single
//! requests, see [`crate::meter::follow`]), all requests are timed.

pub(crate) mod call;
pub(crate) mod follow;
mod histogram;
pub(crate) mod inspect;
pub(crate) mod nfs;
mod numbers;
pub(crate) mod reading;
pub(crate) mod stats;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use dafs_sessions::Sessions;
use dafs_types::Status;
use dafs_wire::Procedure;

pub use histogram::Histogram;
pub(crate) use numbers::Moved;
pub use numbers::{ProcedureNumbers, Traffic, TransportNumbers};

use self::call::CallNote;
use self::follow::Follower;
use self::nfs::{NfsMeter, NfsNumbers};
use self::reading::Reading;
use crate::access::authorize::TransportKind;
use crate::channel::Channel;
use crate::meter::inspect::Window;
use crate::reply_to::ReplyTo;

/// The counters of a server.
#[derive(Debug)]
pub(crate) struct Meter {
    is_on: bool,
    /// True if every request is timed.
    times_all: bool,
    /// The followers, to which single requests are reported.
    followers: Vec<Follower>,
    rows: Box<[Row; ROWS]>,
    failures: BTreeMap<(usize, u32), (Status, u64)>,
    /// The traffic of connections that have ended, by transport.
    departed: [Traffic; TransportKind::ALL.len()],
    epoch: Instant,
    random: u64,
    /// The number of requests since the start.
    requests: u64,
    /// The object through which other threads inspect the server.
    window: Arc<Window>,
    /// The number of peers that were refused because there were no file descriptors, as of the last
    /// log line about such peers.
    turned_away: u64,
    /// The counters of NFS clients.
    nfs: NfsMeter,
}

impl Reading {
    #[inline]
    fn row(self) -> usize {
        self.0 as usize % ROWS
    }

    #[inline]
    fn is_timed(self) -> bool {
        self.0 >= 1 << BEGUN_SHIFT
    }

    fn has_waited(self) -> bool {
        self.0 & WAITED != 0
    }

    fn begun(self) -> u64 {
        self.0 >> BEGUN_SHIFT
    }

    /// Creates the statistics word of a request that is not timed.
    pub(crate) fn of(procedure: Procedure) -> Self {
        Self(row_of(procedure.number()) as u64)
    }

    /// Returns the procedure of the request. `None` if its number is unknown.
    pub(crate) fn procedure(self) -> Option<Procedure> {
        Procedure::from_number(FIRST + self.row() as u32)
    }
}

/// The counters of one procedure.
#[derive(Clone, Debug, Default)]
struct Row {
    /// The number of requests that will arrive before the next timed request.
    until_timed: u32,
    /// The number of completed requests since the last timed request.
    untimed: u32,
    bytes: u64,
    times: Histogram,
    /// The number of completed requests at the last tick.
    answered: u64,
    /// The mean number of requests from one timed request to the next.
    distance: u32,
}

impl Meter {
    pub(crate) fn new(is_on: bool) -> Self {
        let mut meter = Self {
            is_on,
            times_all: false,
            followers: Vec::new(),
            rows: Box::new(std::array::from_fn(|_| Row { distance: 1, ..Row::default() })),
            failures: BTreeMap::new(),
            departed: Default::default(),
            epoch: Instant::now(),
            random: 0x9e37_79b9_7f4a_7c15,
            requests: 0,
            window: Arc::default(),
            turned_away: 0,
            nfs: NfsMeter::default(),
        };
        if !is_on {
            meter.rows.iter_mut().for_each(|row| row.until_timed = u32::MAX);
        }
        meter.time_all();
        meter
    }

    /// Counts an arriving request. Returns its statistics word, which contains the start time if
    /// the request is timed.
    #[inline]
    pub(crate) fn arrive(&mut self, number: u32) -> Reading {
        self.requests += 1;
        let index = row_of(number);
        let row = &mut self.rows[index];
        if row.until_timed == 0 {
            return self.begin(index);
        }
        row.until_timed -= 1;
        Reading(index as u64)
    }

    /// Starts timing a request.
    #[inline(never)]
    fn begin(&mut self, index: usize) -> Reading {
        if !self.is_on {
            return Reading(index as u64);
        }
        let random = self.draw();
        let row = &mut self.rows[index];
        if !self.times_all {
            let span = u64::from(2 * row.distance - 1);
            row.until_timed = u32::try_from(random % span).unwrap_or(0);
        }
        Reading(self.present() << BEGUN_SHIFT | index as u64)
    }

    /// Counts a completed request. Returns the duration of the request in nanoseconds if followers
    /// need it.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        reading: Reading,
        status: Status,
        traffic: &mut Traffic,
    ) -> Option<u64> {
        if !self.is_on {
            return None;
        }
        traffic.requests += 1;
        if reading.is_timed() | (status != Status::Ok) {
            return self.complete_unusual(reading, status);
        }
        self.rows[reading.row()].untimed += 1;
        None
    }

    #[inline(never)]
    fn complete_unusual(&mut self, reading: Reading, status: Status) -> Option<u64> {
        if status != Status::Ok {
            let failure = self.failures.entry((reading.row(), status.number()));
            failure.or_insert((status, 0)).1 += 1;
        }
        let taken = self.taken(reading);
        let row = &mut self.rows[reading.row()];
        match taken {
            None => row.untimed += 1,
            // A request that has waited is not typical, so it represents no other requests.
            Some(taken) if reading.has_waited() => row.times.add(taken, 1),
            Some(taken) => row.times.add(taken, u64::from(std::mem::take(&mut row.untimed)) + 1),
        }
        taken.filter(|_| self.times_all)
    }

    /// Adds to the counters the number of file bytes that a request has read or written.
    #[inline]
    pub(crate) fn add(&mut self, reading: Reading, moved: Moved, traffic: &mut Traffic) {
        let (all, length) = match moved {
            Moved::Nothing => return,
            Moved::Read(length) => (&mut traffic.read_bytes, length),
            Moved::Written(length) => (&mut traffic.written_bytes, length),
        };
        if self.is_on {
            *all += u64::from(length);
            self.rows[reading.row()].bytes += u64::from(length);
        }
    }

    /// Reports to all followers a request that took `taken` nanoseconds.
    pub(crate) fn tell(
        &mut self,
        sessions: &Sessions,
        channel: &Channel,
        to: ReplyTo,
        of: (Status, u32, u64),
    ) {
        let record = follow::record_of(sessions, channel, to, of);
        follow::tell(&mut self.followers, &record);
    }

    /// Records that a request starts to wait. From now on the request is timed.
    pub(crate) fn wait(&self, reading: &mut Reading) {
        if !self.is_on {
            return;
        }
        if !reading.is_timed() {
            reading.0 |= self.present() << BEGUN_SHIFT;
        }
        reading.0 |= WAITED;
    }

    /// Returns the time that a request took, in nanoseconds. `None` if the request was not timed.
    fn taken(&self, reading: Reading) -> Option<u64> {
        reading.is_timed().then(|| self.present().saturating_sub(reading.begun()))
    }

    /// Returns the counters of NFS clients. `None` if requests are not counted.
    pub(crate) fn nfs(&mut self) -> Option<&mut NfsMeter> {
        self.is_on.then_some(&mut self.nfs)
    }

    /// Counts a call of an NFS client. `of` is its program, version and procedure.
    pub(crate) fn begin_nfs(&mut self, of: (u32, u32, u32), xid: u32) -> CallNote {
        if !self.is_on {
            return CallNote::default();
        }
        let now = self.present();
        self.nfs.begin(of, xid, now)
    }

    /// Counts a reply to an NFS client, and the file bytes that it contains. Reports the call to
    /// followers. `results` are those of a call that was executed.
    pub(crate) fn end_nfs(
        &mut self,
        note: &CallNote,
        results: Option<&[u8]>,
        read_bytes: u64,
        address: Option<IpAddr>,
    ) {
        if !self.is_on {
            return;
        }
        let (requests, written_bytes) = (1, 0);
        self.add_nfs(Traffic { requests, read_bytes, written_bytes });
        let now = self.present();
        let ended = self.nfs.end(note, results, read_bytes, now);
        if let Some(ended) = ended.filter(|_| self.times_all) {
            follow::tell(&mut self.followers, &follow::record_of_nfs(&ended, address));
        }
    }

    /// Counts file bytes that a call of an NFS client writes.
    pub(crate) fn count_nfs_write(&mut self, note: &mut CallNote, written_bytes: usize) {
        note.writes(written_bytes);
        let written_bytes = written_bytes as u64;
        self.add_nfs(Traffic { requests: 0, read_bytes: 0, written_bytes });
    }

    fn add_nfs(&mut self, traffic: Traffic) {
        if self.is_on {
            self.requests += traffic.requests;
            self.add_departed(TransportKind::Nfs, traffic);
        }
    }

    /// Returns the statistics of NFS clients.
    pub(crate) fn nfs_numbers(&self) -> NfsNumbers {
        self.nfs.numbers()
    }

    /// Adds the traffic of a connection that has ended to the sum for the connection's transport.
    pub(crate) fn add_departed(&mut self, transport: TransportKind, traffic: Traffic) {
        let all = &mut self.departed[transport as usize];
        all.requests += traffic.requests;
        all.read_bytes += traffic.read_bytes;
        all.written_bytes += traffic.written_bytes;
    }

    /// Adds a follower, to which requests are reported from now on.
    fn add_follower(&mut self, follower: Follower) {
        self.followers.push(follower);
        self.time_all();
    }

    /// Updates `times_all`: every request is timed while there are followers or the log includes
    /// requests.
    fn time_all(&mut self) {
        let all = self.is_on && (!self.followers.is_empty() || follow::is_logged());
        if all && !self.times_all {
            self.rows.iter_mut().for_each(|row| row.until_timed = 0);
        }
        self.times_all = all;
    }

    /// Adjusts for each procedure how often requests are timed. Called every tenth of a second.
    pub(crate) fn on_tick(&mut self) {
        if !self.is_on {
            return;
        }
        self.time_all();
        for row in &mut *self.rows {
            let answered = row.answered();
            let lately = answered - row.answered;
            row.answered = answered;
            let distance = u32::try_from(lately / TIMED_EACH_TICK).unwrap_or(DISTANCE_MAX);
            row.distance = distance.clamp(1, DISTANCE_MAX);
            row.until_timed = row.until_timed.min(2 * row.distance);
        }
    }

    /// Returns the statistics of every procedure that has been called.
    pub(crate) fn procedures(&self) -> Vec<ProcedureNumbers> {
        let known = Procedure::ALL.iter().map(|procedure| Some(*procedure));
        let all = known.chain([None]).map(|procedure| {
            let row = procedure.map_or(UNKNOWN, |procedure| row_of(procedure.number()));
            let numbers = &self.rows[row];
            let failures = self.failures.range((row, 0)..=(row, u32::MAX));
            ProcedureNumbers {
                procedure,
                requests: numbers.answered(),
                failures: failures.map(|(_, failure)| *failure).collect(),
                bytes: numbers.bytes,
                times: numbers.times.clone(),
            }
        });
        all.filter(|numbers| numbers.requests > 0).collect()
    }

    /// Returns the statistics of each transport, including the traffic of `live` connections.
    pub(crate) fn transports(
        &self,
        live: impl Iterator<Item = (TransportKind, Traffic)>,
    ) -> Vec<TransportNumbers> {
        let mut all = TransportKind::ALL.map(|transport| TransportNumbers {
            transport,
            connections: 0,
            traffic: self.departed[transport as usize],
        });
        for (transport, traffic) in live {
            let numbers = &mut all[transport as usize];
            numbers.connections += 1;
            numbers.traffic.requests += traffic.requests;
            numbers.traffic.read_bytes += traffic.read_bytes;
            numbers.traffic.written_bytes += traffic.written_bytes;
        }
        all[TransportKind::Nfs as usize].connections = self.nfs.connections();
        all.to_vec()
    }

    /// Returns the number of requests since the start.
    pub(crate) fn request_count(&self) -> u64 {
        self.requests
    }

    /// Logs a line if more peers have been refused because there were no file descriptors.
    /// `turned_away` is the number of such peers since the start.
    pub(crate) fn note_turned_away(&mut self, turned_away: u64) {
        if turned_away > self.turned_away {
            let count = turned_away - self.turned_away;
            tracing::warn!(
                "{count} connections were refused for lack of file descriptors; raise LimitNOFILE \
                 or ulimit -n"
            );
            self.turned_away = turned_away;
        }
    }

    /// Returns the object through which other threads inspect the server.
    pub(crate) fn window(&self) -> Arc<Window> {
        self.window.clone()
    }

    /// Adds the new followers. Returns true if a thread waits for a copy of the server's state.
    pub(crate) fn is_looked_at(&mut self) -> bool {
        let (followers, is_asked) = self.window.take_followers();
        followers.into_iter().for_each(|follower| self.add_follower(follower));
        is_asked
    }

    /// Returns the nanoseconds since the start of the server, at least 1. A start time in a
    /// [`Reading`] overflows after four years.
    fn present(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Returns a pseudo-random integer, which clients cannot predict from the requests that they
    /// see being timed.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 16
    }
}

impl Row {
    fn answered(&self) -> u64 {
        self.times.count() + u64::from(self.untimed)
    }
}

/// Returns the index of a procedure's row.
#[inline]
fn row_of(number: u32) -> usize {
    (number.wrapping_sub(FIRST) as usize).min(UNKNOWN)
}

/// The lowest procedure number, which row 0 of the statistics describes.
const FIRST: u32 = Procedure::ALL[0].number();
/// The index of the row for all unknown procedure numbers.
const UNKNOWN: usize = ROWS - 1;
const ROWS: usize = 128;
/// The bit in a [`Reading`] that is set if the request has waited.
const WAITED: u64 = ROWS as u64;
/// The bit offset of the start time in a [`Reading`].
const BEGUN_SHIFT: u32 = 8;
/// The approximate number of requests of each procedure that are timed in a tenth of a second.
const TIMED_EACH_TICK: u64 = 64;
/// The maximum mean interval between two timed requests, as a number of requests. Timing a request
/// costs about 100 ns, for two clock reads and mispredicted branches. With one timed request in
/// 512, the mean cost is a fifth of a nanosecond per request.
const DISTANCE_MAX: u32 = 512;

const _: () = {
    let last = Procedure::ALL[Procedure::ALL.len() - 1].number();
    assert!(((last - FIRST) as usize) < UNKNOWN);
    assert!(1 << BEGUN_SHIFT == 2 * ROWS);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(meter: &mut Meter, procedure: Procedure, status: Status, traffic: &mut Traffic) {
        let reading = meter.arrive(procedure.number());
        assert_eq!(reading.procedure(), Some(procedure));
        meter.complete(reading, status, traffic);
    }

    fn numbers_of(meter: &Meter, procedure: Procedure) -> ProcedureNumbers {
        let all = meter.procedures();
        all.into_iter().find(|numbers| numbers.procedure == Some(procedure)).unwrap()
    }

    #[test]
    fn every_procedure_has_a_row_of_its_own() {
        let mut meter = Meter::new(true);
        let mut traffic = Traffic::default();
        for &procedure in Procedure::ALL {
            serve(&mut meter, procedure, Status::Ok, &mut traffic);
        }
        let strange = meter.arrive(7);
        assert_eq!(strange.procedure(), None);
        meter.complete(strange, Status::Inval, &mut traffic);
        let all = meter.procedures();
        assert_eq!(all.len(), Procedure::ALL.len() + 1);
        assert!(all.iter().all(|numbers| numbers.requests == 1), "{all:?}");
        assert_eq!(all.last().unwrap().failures, [(Status::Inval, 1)]);
        assert_eq!(traffic.requests, Procedure::ALL.len() as u64 + 1);
    }

    #[test]
    fn what_is_asked_for_seldom_is_all_timed() {
        let mut meter = Meter::new(true);
        for _ in 0..TIMED_EACH_TICK {
            serve(&mut meter, Procedure::Lookup, Status::Ok, &mut Traffic::default());
        }
        meter.on_tick();
        let numbers = numbers_of(&meter, Procedure::Lookup);
        assert_eq!(numbers.times.count(), TIMED_EACH_TICK);
    }

    #[test]
    fn of_what_is_asked_for_often_some_stand_for_all() {
        let mut meter = Meter::new(true);
        let mut traffic = Traffic::default();
        let each_tick = TIMED_EACH_TICK * u64::from(DISTANCE_MAX) * 4;
        for _ in 0..each_tick {
            serve(&mut meter, Procedure::ReadDirect, Status::Ok, &mut traffic);
        }
        meter.on_tick();
        assert_eq!(meter.rows[row_of(Procedure::ReadDirect.number())].distance, DISTANCE_MAX);
        let mut timed = 0_u32;
        for _ in 0..each_tick {
            let reading = meter.arrive(Procedure::ReadDirect.number());
            timed += u32::from(reading.is_timed());
            meter.complete(reading, Status::Ok, &mut traffic);
        }
        let expected = (each_tick / u64::from(DISTANCE_MAX)) as u32;
        assert!((expected * 3 / 4..expected * 5 / 4).contains(&timed), "{timed} of {each_tick}");
        let numbers = numbers_of(&meter, Procedure::ReadDirect);
        assert_eq!(numbers.requests, 2 * each_tick);
        assert!(numbers.times.count() + u64::from(2 * DISTANCE_MAX) >= numbers.requests);
        assert_eq!(traffic.requests, 2 * each_tick);
    }

    #[test]
    fn what_has_waited_is_timed_and_stands_for_itself() {
        let mut meter = Meter::new(true);
        let mut traffic = Traffic::default();
        meter.rows[row_of(Procedure::ReadDirect.number())].until_timed = 10;
        for _ in 0..5 {
            serve(&mut meter, Procedure::ReadDirect, Status::Ok, &mut traffic);
        }
        let mut waiting = meter.arrive(Procedure::ReadDirect.number());
        assert_eq!(meter.taken(waiting), None);
        meter.wait(&mut waiting);
        assert!(meter.taken(waiting).is_some());
        meter.complete(waiting, Status::Io, &mut traffic);
        let numbers = numbers_of(&meter, Procedure::ReadDirect);
        assert_eq!((numbers.requests, numbers.times.count()), (6, 1));
        assert_eq!(numbers.failures, [(Status::Io, 1)]);
    }

    #[test]
    fn off_it_counts_nothing() {
        let mut meter = Meter::new(false);
        serve(&mut meter, Procedure::Null, Status::Inval, &mut Traffic::default());
        meter.on_tick();
        assert_eq!(meter.procedures(), []);
    }
}
