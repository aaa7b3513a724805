package web

import (
	"fmt"
	"strconv"

	"tranche/scheduler/placing"
	"tranche/store"
	"tranche/web/api"
	"tranche/web/view"
)

// headroomOf is what a node keeps for what its jobs may still need.
func (s *server) headroomOf(d *store.NodeDetail) view.Headroom {
	h := view.Headroom{Storage: s.storageText(&d.NodeLine), Slow: d.Storage.Degraded != 0}
	var total, used, kept int64
	for _, dev := range d.Devices {
		if dev.HBMMiB == 0 {
			continue
		}
		row := view.HeadroomRow{Device: int(dev.Index), Total: dev.HBMMiB, Used: dev.HBMUsedMiB, Forecast: -1}
		if k, ok := d.Headroom[dev.Index]; ok {
			row.Jobs, row.Declared, row.Reserved = k.Jobs, k.Declared, k.Reserved
			if k.Minutes > 0 {
				row.Forecast = k.Forecast
			}
			row.Basis = basisText(&k, dev.HBMMiB)
		}
		total, used, kept = total+row.Total, used+row.Used, kept+max(0, row.Reserved-row.Used)
		h.Rows = append(h.Rows, row)
	}
	h.Answer = fmt.Sprintf("%s of %s of GPU memory are in use; %s more are kept as headroom for what the jobs here may still need.", gibRounded(used), gibRounded(total), gibRounded(kept))
	return h
}

// basisText says why so much is set aside on a device.
func basisText(k *store.Headroom, hbm int64) string {
	switch {
	case k.Learnt:
		return "by what such jobs have used"
	case k.Reserved >= hbm && k.Jobs == 1:
		return "as declared, the whole device"
	}
	return "as declared"
}

func gibRounded(mib int64) string { return strconv.FormatInt((mib+512)/1024, 10) + " GiB" }

// storageText says how a node's storage counts, by its storage hook.
func (s *server) storageText(n *store.NodeLine) string {
	st := &n.Storage
	if !st.Hook {
		return ""
	}
	var text string
	switch {
	case st.Degraded != 0:
		text = fmt.Sprintf("Its storage is degraded since %s: it counts with %s of its bandwidth until it has been good for a while.", s.whenReal(st.Degraded).Text, percentWhole(st.MeanPPM))
		if n.StoMbps > 0 {
			text = fmt.Sprintf("Its storage is degraded since %s: it counts with %s of its %s MB/s until it has been good for a while.", s.whenReal(st.Degraded).Text, percentWhole(st.MeanPPM), grouped(n.StoMbps))
		}
	case st.Said != nil:
		text = "Its storage counts in full."
	}
	if st.Said != nil {
		text += " Its storage hook last said " + percentWhole(*st.Said) + "; the moving mean is " + percentWhole(st.MeanPPM) + "."
	}
	switch {
	case st.Failed != "":
		text += " The storage hook failed " + s.whenReal(st.At).Text + ": " + st.Failed + ". A run that failed says nothing of the storage."
	case st.Said == nil:
		text += "Its storage hook has not said anything yet."
	}
	return text
}

// percentWhole writes millionths as whole percent.
func percentWhole(ppm int64) string { return strconv.FormatInt((ppm+5_000)/10_000, 10) + " %" }

// grouped writes a number with thin spaces between its thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "\u202f" + text[at:]
	}
	return text
}

// flowFacts say what moves through a node now and what it offers.
func flowFacts(n *store.NodeLine) []view.Fact {
	var facts []view.Fact
	for _, f := range []struct {
		name, unit string
		now        *int64
		offers     int64
	}{{"Network", "Mbit/s", n.Flow.NetMbps, n.NetMbps}, {"Storage", "MB/s", n.Flow.StoMBps, n.StoMbps}} {
		var text string
		switch {
		case f.now != nil && f.offers > 0:
			text = grouped(*f.now) + " of " + grouped(f.offers) + " " + f.unit + " now"
		case f.now != nil:
			text = grouped(*f.now) + " " + f.unit + " now"
		case f.offers > 0:
			text = grouped(f.offers) + " " + f.unit + " offered, not measured"
		default:
			continue
		}
		facts = append(facts, view.Fact{Name: f.name, Value: text})
	}
	return facts
}

// storageEvent says what a node's storage hook has led to.
func storageEvent(row view.HistoryRow, after store.StorageOutcome) view.HistoryRow {
	row.By, row.Verb, row.Words = "Its storage hook", "found the storage good again; it counts in full", ""
	if after.Degraded {
		row.Verb = "found the storage degraded; it counts with what is left"
		row.Words = "moving mean " + percentWhole(after.MeanPPM) + " of nominal"
	}
	return row
}

// wireFlow is what moves through a node, what it offers, and how its storage does.
func wireFlow(node *api.Node, n *store.NodeLine) {
	node.NetMbps, node.StoMbps, node.NetNowMbps, node.StoNowMbps = n.NetMbps, n.StoMbps, n.Flow.NetMbps, n.Flow.StoMBps
	if st := &n.Storage; st.Hook {
		node.Storage = &api.NodeStorage{SaidPPM: st.Said, Failed: st.Failed, Degraded: timeOf(st.Degraded), At: timeOf(st.At), CountsPPM: 1_000_000}
		if st.Degraded != 0 {
			node.Storage.CountsPPM = st.MeanPPM
		}
	}
}

// wireHeadroom is each held device's memory: in use, to come, declared, set aside.
func wireHeadroom(d *store.NodeDetail) []api.DeviceMemory {
	var out []api.DeviceMemory
	for _, dev := range d.Devices {
		m := api.DeviceMemory{Device: dev.Index, TotalMiB: dev.HBMMiB, UsedMiB: dev.HBMUsedMiB}
		if k, ok := d.Headroom[dev.Index]; ok {
			m.Jobs, m.DeclaredMiB, m.ReservedMiB, m.HeadroomMiB, m.Learnt = k.Jobs, k.Declared, k.Reserved, max(0, k.Reserved-dev.HBMUsedMiB), k.Learnt
			if k.Minutes > 0 {
				m.ForecastMiB = new(k.Forecast)
			}
		}
		out = append(out, m)
	}
	return out
}

// memoryFacts say what ended jobs of a job's kind used of the GPU memory they declared,
// and what follows from it.
func memoryFacts(d *store.JobDetail, c placing.Class) []view.Fact {
	if c.Seen == 0 || d.Shape.GPUs == 0 {
		return nil
	}
	text := "the peak of " + counted(int(c.Seen), "job", "jobs") + " of its kind was " + percentWhole(c.Mean) + " of the memory declared"
	if d := percentWhole(c.Deviation()); c.Seen > 1 {
		text += ", give or take " + d
	}
	switch {
	case !c.Known():
		text += "; once " + strconv.FormatInt(placing.EnoughSeen, 10) + " have ended, so much is set aside instead of what is declared"
	case d.Shape.HBMMiB == 0 && d.Shape.GPUMilli >= placing.WholeGPU:
		text += "; whole GPUs are set aside with all their memory"
	default:
		text += "; so much is set aside for it"
	}
	return []view.Fact{{Name: "GPU memory", Value: text, Term: "headroom", ID: "job-memory"}}
}
