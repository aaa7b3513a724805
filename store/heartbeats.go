package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// Beat is one node's sign of life.
type Beat struct {
	Node     ledger.NodeID
	BootID   string
	Devices  []DeviceUse
	Attempts []Seen
	Check    *NodeCheck // nil where the node has no health check
	Flow     NodeFlow
	Storage  *StorageRun // nil where the node has no storage hook
}

// NodeFlow is what moves through a node now; nil where it cannot tell.
type NodeFlow struct {
	NetMbps *int64 // Mbit/s in the busier direction
	StoMBps *int64 // MB/s
}

// NodeCheck is one run of a node's own health check. N differs from run to run; 0 =
// a check that has not run yet.
type NodeCheck struct {
	N   int64
	Say scheduler.Check
	Why string
}

func (f *NodeFlow) known() bool { return f.NetMbps != nil || f.StoMBps != nil }

// DeviceUse is one reading of one device; UtilPct below 0 is unknown.
type DeviceUse struct {
	Index      int32
	UtilPct    int32
	HBMUsedMiB int64
	OK         bool
}

// Seen is what a node knows of one attempt's part. ElapsedUS is real µs since its claim.
type Seen struct {
	Attempt   ledger.AttemptID
	Fence     int64
	Rank      int32
	ElapsedUS int64
}

// telemetryEvery is how far apart the rows kept of a node are at least, real ms: one
// per 10 s, where every second heartbeat may come a little early.
const telemetryEvery = 9_000

// heartbeats gathers the beats that arrive while others are being written, so
// that many nodes cost few transactions.
type heartbeats struct {
	mu      sync.Mutex
	waiting []beatCall
	writing bool
	kept    map[ledger.NodeID]ledger.Instant // last telemetry row, real
}

type beatCall struct {
	beat Beat
	done chan error
}

// Heartbeat records a node's sign of life. It returns once that is written,
// together with whatever other nodes sent meanwhile.
func (s *Store) Heartbeat(ctx context.Context, b Beat) error {
	call := beatCall{b, make(chan error, 1)}
	h := &s.beats
	h.mu.Lock()
	h.waiting = append(h.waiting, call)
	first := !h.writing
	h.writing = true
	h.mu.Unlock()
	if first {
		// The writer also serves others, so it outlives its own caller's patience.
		go s.writeBeats(context.WithoutCancel(ctx))
	}
	select {
	case err := <-call.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeBeats writes until nothing waits any more.
func (s *Store) writeBeats(ctx context.Context) {
	h := &s.beats
	for {
		h.mu.Lock()
		calls := h.waiting
		h.waiting = nil
		h.writing = len(calls) > 0
		h.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		beats := make([]Beat, len(calls))
		for i, c := range calls {
			beats[i] = c.beat
		}
		err := s.recordBeats(ctx, beats)
		for _, c := range calls {
			c.done <- err
		}
	}
}

// recordBeats writes a batch of beats in one transaction.
func (s *Store) recordBeats(ctx context.Context, beats []Beat) error {
	// A node that beat twice meanwhile is known by its last word.
	latest := map[ledger.NodeID]Beat{}
	for _, b := range beats {
		latest[b.Node] = b
	}
	batchOf := make([]Beat, 0, len(latest))
	for _, b := range latest {
		batchOf = append(batchOf, b)
	}
	slices.SortFunc(batchOf, func(a, b Beat) int { return cmp.Compare(a.Node, b.Node) })
	var kept []Beat
	var back []PartRef
	err := s.inTx(ctx, "heartbeat", func(tx *Tx) error {
		batch := &pgx.Batch{}
		back = nil
		s.queueSeen(batch, batchOf, tx.Now)
		queueReturned(batch, batchOf, &back)
		queueDevices(batch, batchOf, tx.Real)
		queueChecks(batch, batchOf, tx.Real)
		var rebooted int64
		queueSigns(batch, batchOf, tx.Real, &rebooted)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("record heartbeats: %w", err)
		}
		if rebooted > 0 {
			tx.Notify(channelOrders)
		}
		if err := takeStorage(ctx, tx, batchOf); err != nil {
			return err
		}
		kept = s.telemetryDue(batchOf, tx.Real)
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"node_telemetry"}, []string{"node_id", "at", "devices", "util_pct", "hbm_used_mib", "net_mbps", "sto_mbps", "sto_said_ppm"},
			pgx.CopyFromSlice(len(kept), func(i int) ([]any, error) {
				index, util, hbm := kept[i].readings()
				return []any{kept[i].Node, tx.Now, index, util, hbm, kept[i].Flow.NetMbps, kept[i].Flow.StoMBps, kept[i].Storage.saidPPM()}, nil
			}))
		return err
	})
	if err == nil {
		s.beats.mu.Lock()
		for _, b := range kept {
			s.beats.kept[b.Node] = s.Real()
		}
		s.beats.mu.Unlock()
	}
	for _, p := range back {
		err = errors.Join(err, s.takeBack(ctx, p))
	}
	return err
}

// telemetryDue picks the nodes whose last kept reading is old enough.
func (s *Store) telemetryDue(beats []Beat, real ledger.Instant) []Beat {
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	if s.beats.kept == nil {
		s.beats.kept = map[ledger.NodeID]ledger.Instant{}
	}
	var due []Beat
	for _, b := range beats {
		last, ok := s.beats.kept[b.Node]
		if (len(b.Devices) > 0 || b.Flow.known()) && (!ok || real.MillisSince(last) >= telemetryEvery) {
			due = append(due, b)
		}
	}
	return due
}

func (b *Beat) readings() (index, util []int32, hbm []int64) {
	index, util, hbm = []int32{}, []int32{}, []int64{} // of a node without devices they are empty, not unknown
	for _, d := range b.Devices {
		index, util, hbm = append(index, d.Index), append(util, d.UtilPct), append(hbm, d.HBMUsedMiB)
	}
	return index, util, hbm
}

// queueSeen notes how far attempts have come, by the last heartbeat's word.
func (s *Store) queueSeen(batch *pgx.Batch, beats []Beat, now ledger.Instant) {
	type row struct {
		seen Seen
		node ledger.NodeID
	}
	var all []row
	for _, b := range beats {
		for _, a := range b.Attempts {
			all = append(all, row{a, b.Node})
		}
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.seen.Attempt, b.seen.Attempt), cmp.Compare(a.seen.Rank, b.seen.Rank))
	})
	attempts, fences, ranks := make([]int64, len(all)), make([]int64, len(all)), make([]int32, len(all))
	nodes, elapsed := make([]int64, len(all)), make([]int64, len(all))
	for i, r := range all {
		attempts[i], fences[i], ranks[i] = int64(r.seen.Attempt), r.seen.Fence, r.seen.Rank
		nodes[i], elapsed[i] = int64(r.node), s.businessMs(r.seen.ElapsedUS)
	}
	// Attempts before their parts, each in order, as everybody locks them. More
	// than the server itself saw pass, and a real second, is not believed.
	const mine = `with said as (select u.attempt, u.rank, greatest(p.seen_ms, least(u.elapsed, (extract(epoch from $6 - p.claimed_at) * 1000)::bigint + $7)) as seen
			from unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[], $5::bigint[]) u (attempt, fence, rank, node, elapsed)
			join attempts a on a.id = u.attempt and a.fence = u.fence and a.phase <> 'closed'
			join placements p on p.attempt_id = u.attempt and p.rank = u.rank and p.node_id = u.node and p.claimed_at is not null and not p.ended)
		`
	args := []any{attempts, fences, ranks, nodes, elapsed, now, 1000 * s.Speed()}
	batch.Queue(mine+`select from attempts where id in (select attempt from said) order by id for update`, args...)
	batch.Queue(mine+`update attempts a set proven_ms = greatest(a.proven_ms, most.seen)
		from (select attempt, max(seen) as seen from said group by attempt) most where a.id = most.attempt and a.phase <> 'closed'`, args...)
	batch.Queue(mine+`select from placements where (attempt_id, rank) in (select attempt, rank from said) order by attempt_id, rank for update`, args...)
	batch.Queue(mine+`update placements p set seen_ms = said.seen from said
		where said.attempt = p.attempt_id and said.rank = p.rank and not p.ended`, args...)
}

// queueDevices notes the devices' use, and which of them are dead.
func queueDevices(batch *pgx.Batch, beats []Beat, real ledger.Instant) {
	var nodes, hbm []int64
	var indices, util []int32
	var dead []bool
	for _, b := range beats {
		for _, d := range b.Devices {
			nodes, indices = append(nodes, int64(b.Node)), append(indices, d.Index)
			util, hbm, dead = append(util, d.UtilPct), append(hbm, d.HBMUsedMiB), append(dead, !d.OK)
		}
	}
	if len(nodes) == 0 {
		return
	}
	batch.Queue(`update devices d set util_pct = u.util, hbm_used_mib = u.hbm, dead = u.dead, seen_at = $6
		from unnest($1::bigint[], $2::int[], $3::int[], $4::bigint[], $5::boolean[]) u (node, idx, util, hbm, dead)
		where d.node_id = u.node and d.idx = u.idx`, nodes, indices, util, hbm, dead, real)
}

// queueChecks counts runs of health checks; what follows is the leader's to say.
func queueChecks(batch *pgx.Batch, beats []Beat, real ledger.Instant) {
	nodes, runs := make([]int64, len(beats)), make([]int64, len(beats))
	said, whys := make([]string, len(beats)), make([]string, len(beats))
	for i := range beats {
		nodes[i], runs[i] = int64(beats[i].Node), -1
		if c := beats[i].Check; c != nil {
			runs[i], said[i], whys[i] = c.N, string(c.Say), firstBytes(c.Why, 500)
		}
	}
	batch.Queue(`with said as (select * from unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) u (node, n, word, why)),
		mine as (select n.id, said.n, said.word, said.why, said.word = n.check_last or said.word <> 'ok' and n.check_last in ('degraded', 'fault') as same
			from nodes n join said on said.node = n.id where said.n not in (0, n.check_n) order by n.id for update of n)
		update nodes n set check_n = mine.n, check_last = mine.word, check_why = mine.why,
			check_bad_why = case when mine.word in ('degraded', 'fault') then mine.why else n.check_bad_why end,
			check_streak = case when mine.word = '' then 0 when mine.same then n.check_streak + 1 else 1 end,
			check_since = case when mine.word = '' then null when mine.same then n.check_since else $5 end
		from mine where n.id = mine.id`, nodes, runs, said, whys, real)
}

// firstBytes cuts a text at a rune's end.
func firstBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// queueSigns notes that the nodes live and what moves through them; what silence
// means is the leader's to say. A node that was restarted gets its orders anew.
func queueSigns(batch *pgx.Batch, beats []Beat, real ledger.Instant, rebooted *int64) {
	nodes, boots := make([]int64, len(beats)), make([]string, len(beats))
	net, sto := make([]*int64, len(beats)), make([]*int64, len(beats))
	for i, b := range beats {
		nodes[i], boots[i], net[i], sto[i] = int64(b.Node), b.BootID, b.Flow.NetMbps, b.Flow.StoMBps
	}
	batch.Queue(`with said as (select * from unnest($1::bigint[], $2::text[], $4::bigint[], $5::bigint[]) u (node, boot, net, sto)),
		mine as (select n.id, said.boot, said.net, said.sto, n.boot_id <> said.boot as rebooted from nodes n join said on said.node = n.id order by n.id for update of n),
		done as (update nodes n set heartbeat_at = $3, boot_id = mine.boot, orders = n.orders + mine.rebooted::int, net_now_mbps = mine.net, sto_now_mbps = mine.sto from mine where n.id = mine.id)
		select count(*) filter (where rebooted) from mine`, nodes, boots, real, net, sto).
		QueryRow(func(row pgx.Row) error { return row.Scan(rebooted) })
}

// businessMs turns an agent's real µs into business ms: the one place that does.
func (s *Store) businessMs(us int64) int64 {
	const most = 1 << 50 // 35 years; more is a broken clock
	return max(0, min(us, most)) * s.Speed() / 1000
}
