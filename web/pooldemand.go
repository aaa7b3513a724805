package web

import (
	"net/http"
	"strconv"

	"github.com/a-h/templ"

	"tranche/ledger"
	"tranche/scheduler"
	"tranche/store"
	"tranche/web/view"
)

// demandForm reads what a pool's jobs usually need per GPU.
func demandForm(r *http.Request) store.Demand {
	return store.Demand{NetMbps: formID(r, "net_mbps"), StoMbps: formID(r, "sto_mbps"), IOCMilli: formID(r, "io_milli")}
}

// demands lists what every pool's jobs usually need.
func (s *server) demands(r *http.Request) ([]view.PoolDemand, error) {
	pools, err := s.store.Pools(r.Context())
	if err != nil {
		return nil, err
	}
	offers, err := s.store.Offers(r.Context())
	if err != nil {
		return nil, err
	}
	out := make([]view.PoolDemand, len(pools))
	for i := range pools {
		out[i] = demandOf(&pools[i], offers[pools[i].ID])
	}
	return out, nil
}

func demandOf(p *store.Pool, offer scheduler.Flow) view.PoolDemand {
	words := func(f scheduler.Flow) string {
		if text := flowText(&f); text != "" {
			return text[len(", "):]
		}
		return "nothing"
	}
	return view.PoolDemand{
		ID: p.ID, Pool: p.Name, Offered: words(offer),
		Text: words(scheduler.Flow{NetMbps: p.NetMbps, StoMbps: p.StoMbps, IOCMilli: p.IOCMilli}),
	}
}

// poolDemand shows what one pool's jobs usually need.
func (s *server) poolDemand(w http.ResponseWriter, r *http.Request) error {
	page, err := s.poolDemandPage(r, newForm(), true)
	if err != nil {
		return err
	}
	return s.show(w, r, page)
}

// poolDemandPage is the form; fresh fills in what holds now.
func (s *server) poolDemandPage(r *http.Request, form view.Form, fresh bool) (templ.Component, error) {
	pools, err := s.store.Pools(r.Context())
	if err != nil {
		return nil, err
	}
	offers, err := s.store.Offers(r.Context())
	if err != nil {
		return nil, err
	}
	for i := range pools {
		p := &pools[i]
		if p.ID != ledger.PoolID(pathID(r)) {
			continue
		}
		if fresh {
			number := func(n int64) []string { return []string{strconv.FormatInt(n, 10)} }
			form.Values = map[string][]string{"net_mbps": number(p.NetMbps), "sto_mbps": number(p.StoMbps), "io_milli": number(p.IOCMilli)}
		}
		d := demandOf(p, offers[p.ID])
		d.Form = form
		return view.PoolDemandPage(s.shell(r, "What jobs of "+p.Name+" usually need", "admin-pools", ""), d), nil
	}
	return nil, missing("pool", "There is no such pool.")
}

// setPoolDemand changes what one pool's jobs usually need.
func (s *server) setPoolDemand(w http.ResponseWriter, r *http.Request) error {
	id := ledger.PoolID(pathID(r))
	if err := s.store.SetPoolDemand(r.Context(), s.command(r), id, demandForm(r)); err != nil {
		err = refield(err, "gpu_net_mbps", "net_mbps", "gpu_sto_mbps", "sto_mbps", "gpu_ioc_milli", "io_milli")
		return s.again(w, r, err, func(f view.Form) (templ.Component, error) { return s.poolDemandPage(r, f, false) })
	}
	return s.done(w, r, view.AdminPoolsURL, "Saved. It holds for jobs submitted from now on.")
}
