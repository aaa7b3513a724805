package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/ledger"
	"tranche/scheduler"
)

// SubmittedFlow is what a job asks for beside GPUs, cores and memory. Nil stands for
// the pool's default; 0 for none, of the GPU memory for a part as large as that of
// the GPU.
type SubmittedFlow struct {
	HBMMiB   *int64 // of each GPU
	NetMbps  *int64 // per node, Mbit/s
	StoMbps  *int64 // per node, MB/s
	IOCMilli *int64 // per node, processors that move data
}

// flowOf asks for what a job has.
func flowOf(f *scheduler.Flow) SubmittedFlow {
	return SubmittedFlow{&f.HBMMiB, &f.NetMbps, &f.StoMbps, &f.IOCMilli}
}

// mostFlow bounds what is typed, so that sums and squares stay whole numbers.
const mostFlow = 100_000_000

func (s *SubmittedFlow) check(f *formCheck) {
	for _, v := range []struct {
		field, what string
		value       *int64
	}{{"hbm_mib", "GPU memory", s.HBMMiB}, {"net_mbps", "network bandwidth", s.NetMbps}, {"sto_mbps", "storage bandwidth", s.StoMbps}, {"ioc_milli", "processors that move data", s.IOCMilli}} {
		n := given(v.value, 0)
		f.want(n >= 0 && n <= mostFlow, v.field, "job.flow", fmt.Sprintf("Of %s a job asks for 0 to %d; leave it empty for the pool's default.", v.what, mostFlow))
	}
}

// over fills in the pool's defaults for a shape: so much per GPU, of what some node
// of the pool offers at all, and not more than the largest has.
func (s *SubmittedFlow) over(t *target, sh *scheduler.Shape) scheduler.Flow {
	var most nodeSize
	for i := range t.nodes {
		most.grow(&t.nodes[i])
	}
	usual := func(perGPU, offered int64) int64 {
		return min(perGPU*sh.GPUs*sh.GPUMilli/1000, offered)
	}
	d := &t.pool.demand
	return scheduler.Flow{
		HBMMiB:   given(s.HBMMiB, 0),
		NetMbps:  given(s.NetMbps, usual(d.NetMbps, most.NetMbps)),
		StoMbps:  given(s.StoMbps, usual(d.StoMbps, most.StoMbps)),
		IOCMilli: given(s.IOCMilli, usual(d.IOCMilli, most.IOCMilli)),
	}
}

// checkFits refuses what no node of the pool offers.
func (s *SubmittedFlow) checkFits(f *formCheck, t *target, sh *scheduler.Shape, most *nodeSize) bool {
	ok := true
	for _, v := range []struct {
		field, what, unit string
		value, most       int64
	}{
		{"hbm_mib", "memory on each GPU", "MiB", sh.HBMMiB, most.HBMMiB},
		{"net_mbps", "network bandwidth", "Mbit/s", sh.NetMbps, most.NetMbps},
		{"sto_mbps", "storage bandwidth", "MB/s", sh.StoMbps, most.StoMbps},
		{"ioc_milli", "processors that move data", "thousandths", sh.IOCMilli, most.IOCMilli},
	} {
		why := fmt.Sprintf("No node of pool %s has %d %s of %s; the largest has %d.", t.pool.name, v.value, v.unit, v.what, v.most)
		if v.most == 0 {
			why = fmt.Sprintf("No node of pool %s says how much %s it has, so none can be set aside; leave it empty.", t.pool.name, v.what)
		}
		ok = f.want(v.value <= v.most, v.field, "job.flow_too_much", why) && ok
	}
	return ok
}

// grow makes a size as large as another in everything.
func (n *nodeSize) grow(o *nodeSize) {
	n.gpus, n.CPUMilli, n.RAMMiB, n.HBMMiB = max(n.gpus, o.gpus), max(n.CPUMilli, o.CPUMilli), max(n.RAMMiB, o.RAMMiB), max(n.HBMMiB, o.HBMMiB)
	n.NetMbps, n.StoMbps, n.IOCMilli = max(n.NetMbps, o.NetMbps), max(n.StoMbps, o.StoMbps), max(n.IOCMilli, o.IOCMilli)
}

// check refuses a default demand out of range.
func (d *Demand) check() ledger.Refusals {
	var f formCheck
	for _, v := range []struct {
		field, what string
		value       int64
	}{{"gpu_net_mbps", "network bandwidth", d.NetMbps}, {"gpu_sto_mbps", "storage bandwidth", d.StoMbps}, {"gpu_ioc_milli", "processors that move data", d.IOCMilli}} {
		f.want(v.value >= 0 && v.value <= mostFlow, v.field, "pool.demand", fmt.Sprintf("The usual %s per GPU is 0 to %d.", v.what, mostFlow))
	}
	return f.refusals
}

// Offers gives, by pool, the most that any of its nodes offers beside GPUs, cores and
// memory.
func (s *Store) Offers(ctx context.Context) (map[ledger.PoolID]scheduler.Flow, error) {
	rows, err := s.pool.Query(ctx, `select n.pool_id, max(n.net_mbps), max(n.sto_mbps), max(n.ioc_milli),
		coalesce(max((select min(hbm_mib) from devices where node_id = n.id and not dead)), 0) from nodes n where n.retired_at is null group by n.pool_id`)
	if err != nil {
		return nil, fmt.Errorf("store: offers: %w", err)
	}
	out := map[ledger.PoolID]scheduler.Flow{}
	var id ledger.PoolID
	var f scheduler.Flow
	_, err = pgx.ForEachRow(rows, []any{&id, &f.NetMbps, &f.StoMbps, &f.IOCMilli, &f.HBMMiB}, func() error {
		out[id] = f
		return nil
	})
	return out, err
}

// SetPoolDemand changes what a pool's jobs ask for per GPU when their owners do not
// say. Jobs that were submitted keep what they asked for.
func (s *Store) SetPoolDemand(ctx context.Context, cmd Command, pool ledger.PoolID, in Demand) error {
	type content struct {
		Pool   ledger.PoolID
		Demand Demand
	}
	_, err := runCommand(ctx, s, "pool.demand", cmd, content{pool, in}, func(tx *Tx) (ledger.PoolID, error) {
		var root Group
		if err := tx.QueryRow(ctx, `select `+groupColumns+` from groups g where g.parent_id is null`).Scan(root.fields()...); err != nil {
			return 0, err
		}
		if r := cmd.Actor.May(ledger.PoolWrite, root.Path, tx.Now); r != nil {
			return 0, r
		}
		if rs := in.check(); len(rs) > 0 {
			return 0, rs
		}
		var was Demand
		err := tx.QueryRow(ctx, `select gpu_net_mbps, gpu_sto_mbps, gpu_ioc_milli from pools where id = $1 for update`, pool).Scan(&was.NetMbps, &was.StoMbps, &was.IOCMilli)
		if noRow(err) {
			return 0, refuse(ledger.Missing, "pool.missing", "pool", "There is no such pool; choose one of the list.")
		}
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, `update pools set gpu_net_mbps = $2, gpu_sto_mbps = $3, gpu_ioc_milli = $4 where id = $1`, pool, in.NetMbps, in.StoMbps, in.IOCMilli); err != nil {
			return 0, err
		}
		return pool, audit(ctx, tx, cmd, act{Verb: "pool.demand", Subject: subjectOf("pool", pool), Before: was, After: in})
	})
	return err
}
