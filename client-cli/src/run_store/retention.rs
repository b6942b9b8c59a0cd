//! Which runs can be erased, and what that would free.

use super::StoreError;
use super::reader::{Chained, Reader};
use super::record::Record;
use super::values::{erase, files};

impl Reader {
    /// Returns the runs that have ended and still have all their values, the oldest first, each with the time of its end;
    /// and the number of those without an end.
    pub(crate) fn kept_runs(&self) -> Result<(Vec<(String, String)>, usize), StoreError> {
        let mut statement = self.database.prepare(
            "SELECT began.run_id, ended.body ->> '$.at'
             FROM records AS began
             LEFT JOIN records AS ended ON ended.run_id = began.run_id AND ended.type = 'run_ended'
             WHERE began.type = 'run_began' AND NOT EXISTS (
                SELECT 1 FROM records AS erased WHERE erased.run_id = began.run_id
                AND erased.type = 'values_erased' AND erased.body ->> '$.call' IS NULL)
             ORDER BY began.seq",
        )?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, Option<_>>(1)?)))?;
        let (mut ended, mut others) = (Vec::new(), 0);
        for row in rows {
            match row? {
                (run, Some(at)) => ended.push((run, at)),
                (_, None) => others += 1,
            }
        }
        Ok((ended, others))
    }

    /// Returns the size of what can be erased of a run, in bytes: its values, and the files that it names, although other
    /// runs may name them as well.
    pub(crate) fn size_of(&self, run: &str) -> Result<u64, StoreError> {
        let mut size = 0;
        for (Chained { row, .. }, _) in self.records_of(run)? {
            let Ok(mut record) = serde_json::from_str::<Record>(&row.body) else { continue };
            for hash in files(&record) {
                let found = std::fs::symlink_metadata(self.kept_path(hash));
                size += found.map_or(0, |found| found.len());
            }
            if erase(&mut record) {
                let left = record.to_row().body.len();
                size += row.body.len().saturating_sub(left) as u64;
            }
        }
        Ok(size)
    }
}
