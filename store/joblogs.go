package store

import (
	"context"

	"tranche/ledger"
)

// Output of one attempt's part is kept up to logKept bytes: the first logHead
// for ever, then the newest of the rest.
const (
	logKept = 1 << 20
	logHead = logKept / 2
)

// AppendLog takes output from an offset on and says where to go on. What the
// server already has is passed over; a gap is refused by naming its own offset.
func (s *Store) AppendLog(ctx context.Context, p PartRef, offset int64, data []byte) (next int64, err error) {
	err = s.inTx(ctx, "append log", func(tx *Tx) error {
		err := tx.QueryRow(ctx, `select log_next from placements where attempt_id = $1 and rank = $2 and node_id = $3 for update`,
			p.Attempt, p.Rank, p.Node).Scan(&next)
		if noRow(err) {
			return refuse(ledger.Missing, "attempt.missing", "", "This node has no such attempt.")
		}
		if err != nil || offset > next || offset+int64(len(data)) <= next {
			return err
		}
		data := data[next-offset:]
		if _, err := tx.Exec(ctx, `insert into job_logs (attempt_id, rank, "offset", data) values ($1, $2, $3, $4)`,
			p.Attempt, p.Rank, next, data); err != nil {
			return err
		}
		next += int64(len(data))
		// Whole pieces between head and tail go.
		_, err = tx.Exec(ctx, `with gone as (delete from job_logs where attempt_id = $1 and rank = $2 and "offset" >= $3
				and "offset" + length(data) <= $4 returning length(data) as n)
			update placements set log_next = $5, log_cut = log_cut + coalesce((select sum(n) from gone), 0) where attempt_id = $1 and rank = $2`,
			p.Attempt, p.Rank, int64(logHead), next-(logKept-logHead), next)
		return err
	})
	return next, err
}

// LogQuery says which output to read. Attempt 0 is the newest that has started.
type LogQuery struct {
	Job     ledger.JobID
	Attempt ledger.AttemptID
	Rank    int32
	Offset  int64 // below 0: so many bytes from the end
	Limit   int64 // bytes
}

// LogPiece is a piece of one attempt's output.
type LogPiece struct {
	Attempt     ledger.AttemptID
	Rank        int32
	Offset      int64 // of Data's first byte; above what was asked when output was cut there
	Next        int64
	Size        int64 // bytes written so far
	Cut         int64 // of them no longer kept
	Data        []byte
	End         bool             // the part is over and nothing follows Next
	NextAttempt ledger.AttemptID // that followed; 0: none yet
}

// mostLogBytes bounds one answer.
const mostLogBytes = 256 << 10

// Logs reads output; its owner may, and who may see private things of the project.
func (s *Store) Logs(ctx context.Context, actor ledger.Actor, q LogQuery) (LogPiece, error) {
	var piece LogPiece
	err := s.readTx(ctx, "logs", func(tx *Tx) error {
		if err := maySeePrivate(ctx, tx, actor, q.Job); err != nil {
			return err
		}
		var ended bool
		err := tx.QueryRow(ctx, `select a.id, p.rank, p.log_next, p.log_cut, p.ended or a.phase = 'closed',
				coalesce((select min(b.id) from attempts b where b.job_id = a.job_id and b.n > a.n), 0)
			from attempts a join placements p on p.attempt_id = a.id
			where a.job_id = $1 and p.rank = $3 and ($2 = 0 or a.id = $2) order by (p.claimed_at is null), a.n desc limit 1`,
			q.Job, q.Attempt, q.Rank).Scan(&piece.Attempt, &piece.Rank, &piece.Size, &piece.Cut, &ended, &piece.NextAttempt)
		if noRow(err) {
			if q.Attempt != 0 {
				return refuse(ledger.Missing, "attempt.missing", "", "This job has no such attempt.")
			}
			return nil // nothing has started yet
		}
		if err != nil {
			return err
		}
		if q.Offset < 0 {
			q.Offset = max(0, piece.Size+q.Offset)
		}
		if err := piece.read(ctx, tx, q); err != nil {
			return err
		}
		piece.End = ended && piece.Next >= piece.Size
		return nil
	})
	return piece, err
}

// read fills the piece from the first kept byte at or after the offset asked.
func (piece *LogPiece) read(ctx context.Context, tx *Tx, q LogQuery) error {
	limit := min(max(q.Limit, 1), mostLogBytes)
	rows, err := tx.Query(ctx, `select "offset", data from job_logs where attempt_id = $1 and rank = $2 and "offset" + length(data) > $3
		order by "offset" limit 1024`, piece.Attempt, q.Rank, q.Offset)
	if err != nil {
		return err
	}
	defer rows.Close()
	piece.Offset, piece.Next = q.Offset, q.Offset
	for rows.Next() && int64(len(piece.Data)) < limit {
		var at int64
		var data []byte
		if err := rows.Scan(&at, &data); err != nil {
			return err
		}
		switch {
		case at > piece.Next && len(piece.Data) > 0:
			return rows.Err() // a cut begins here: the next answer goes on after it
		case at > piece.Next:
			piece.Offset, piece.Next = at, at
		}
		data = data[piece.Next-at:]
		data = data[:min(int64(len(data)), limit-int64(len(piece.Data)))]
		piece.Data = append(piece.Data, data...)
		piece.Next += int64(len(data))
	}
	return rows.Err()
}

// maySeePrivate lets owners and the roles of see.private pass.
func maySeePrivate(ctx context.Context, tx *Tx, actor ledger.Actor, job ledger.JobID) error {
	var owner ledger.PersonID
	var path string
	err := tx.QueryRow(ctx, `select j.member_id, g.path from jobs j join groups g on g.id = j.project_id where j.id = $1`, job).Scan(&owner, &path)
	if noRow(err) {
		return missingJob(job)
	}
	if err != nil {
		return err
	}
	if !seesPrivate(actor, owner, path, tx.Now) {
		return actor.May(ledger.SeePrivate, path, tx.Now)
	}
	return nil
}

// seesPrivate says whether commands, environment and logs of a job are for the actor.
func seesPrivate(actor ledger.Actor, owner ledger.PersonID, path string, now ledger.Instant) bool {
	if actor.Person == owner && (actor.TokenProject == 0 || ledger.Covers(actor.TokenPath, path)) {
		return true
	}
	return actor.May(ledger.SeePrivate, path, now) == nil
}
