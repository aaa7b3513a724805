package main

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tranche/scheduler/placing"
	"tranche/scheduler/sim/packing"
)

type simPackingCommand struct {
	Trace     string    `required:"" type:"existingdir" help:"Folder of the trace, with nodes/, pods/ and published/."`
	Lists     []string  `default:"default" help:"Job lists, e.g. default,multigpu50; all stands for those with published results."`
	Seeds     int       `default:"10" help:"Runs per list and policy."`
	FirstSeed uint64    `default:"42" help:"Seed of the first run; the others follow. The published runs have 42 to 51."`
	Policies  []string  `help:"Policies to compare; without it all."`
	Storage   []float64 `help:"Loads of a synthetic storage, each a comparison of its own: jobs of the list ask for so much of it." placeholder:"0.76,0.85"`
	SVG       string    `name:"svg" help:"File to draw the comparison into as well." placeholder:"FILE"`
	Workers   int       `help:"Runs at once; without it as many as there are processors."`
}

// Help adds examples.
func (simPackingCommand) Help() string {
	return `Jobs of a list arrive one by one on the trace's empty cluster, none ends, and
what does not fit is lost, until they asked for 130 % of its GPUs. Compared is the
GPU that each policy could give. "tranche" is ragp-x with the list's own mix of
jobs, "tranche_learnt" the same with the mix learnt from arrivals; "published" are
the means of the FGD paper's runs. See docs/placement.md.

Policies: ` + strings.Join(packing.Names(), ", ") + `

Examples:
  tranche sim packing --trace alibaba-gpu-2023 --seeds 3
  tranche sim packing --trace alibaba-gpu-2023 --storage 0.76,0.85,0.91 --policies tranche,fgd,fgd_io
  tranche sim packing --trace alibaba-gpu-2023 --lists all --policies tranche,fgd --json`
}

// Run plays every list with every policy and seed.
func (c *simPackingCommand) Run(ctx context.Context, t *terminal) error {
	if c.Seeds < 1 || c.Seeds > 1000 {
		return &usageError{"--seeds is 1 to 1000"}
	}
	if len(c.Policies) == 0 {
		c.Policies = packing.Names()
	}
	for _, p := range c.Policies {
		if !slices.Contains(packing.Names(), p) {
			return &usageError{fmt.Sprintf("no policy is called %q; there are %s", p, strings.Join(packing.Names(), ", "))}
		}
	}
	published, err := readPublished(filepath.Join(c.Trace, "published", "fgd_published_summary.csv"))
	if err != nil {
		return err
	}
	lists := c.Lists
	if slices.Contains(lists, "all") {
		lists = published.lists()
	}
	if len(lists) == 0 {
		return &usageError{"the trace has no published results, so say which --lists"}
	}
	nodes, err := readList(c.Trace, "nodes/openb_node_list_gpu_node", packing.ReadNodes)
	if err != nil {
		return err
	}
	var runs []packing.Options
	var names []string
	for _, list := range lists {
		pods, err := readList(c.Trace, "pods/openb_pod_list_"+list, packing.ReadPods)
		if err != nil {
			return err
		}
		worlds, err := c.worlds(list, nodes, pods)
		if err != nil {
			return err
		}
		for _, w := range worlds {
			names = append(names, w.name)
			for _, p := range c.Policies {
				for s := range c.Seeds {
					runs = append(runs, packing.Options{Nodes: w.nodes, Pods: w.pods, Policy: p, Seed: c.FirstSeed + uint64(s)})
				}
			}
		}
	}
	results, err := playAll(ctx, t.Err, runs, c.Workers, packing.Run)
	if err != nil {
		return err
	}
	return c.report(t, names, results, published)
}

// packingWorld is a list with the cluster it comes to.
type packingWorld struct {
	name  string
	nodes []placing.Node
	pods  []packing.Pod
}

// worlds are a list as it is, or once for each load of a synthetic storage.
func (c *simPackingCommand) worlds(list string, nodes []placing.Node, pods []packing.Pod) ([]packingWorld, error) {
	if len(c.Storage) == 0 {
		return []packingWorld{{list, nodes, pods}}, nil
	}
	var all []packingWorld
	for _, load := range c.Storage {
		if !(load > 0 && load <= 10) {
			return nil, &usageError{"--storage takes loads above 0, such as 0.85"}
		}
		n, p, err := packing.WithStorage(nodes, pods, int64(load*1_000_000+0.5))
		if err != nil {
			return nil, err
		}
		all = append(all, packingWorld{fmt.Sprintf("%s, storage %.2f", list, load), n, p})
	}
	return all, nil
}

// readList opens a table that may be compressed and reads it.
func readList[T any](trace, name string, read func(io.Reader) ([]T, error)) ([]T, error) {
	path := filepath.Join(trace, filepath.FromSlash(name)+".csv")
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		path += ".gz"
		file, err = os.Open(path)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	all, err := read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// figures are one policy's means: allocated_pct_at_100, frag_amount_pct_at_100,
// frag_ratio_pct_at_90 and so on, for every mark.
type figures map[string]float64

// publishedFigures are those of the FGD paper, list → policy → figures.
type publishedFigures map[string]map[string]figures

func (p publishedFigures) lists() []string {
	var all []string
	for list := range p {
		all = append(all, list)
	}
	slices.Sort(all)
	return all
}

// readPublished reads the summary of the published runs; a trace without one has none.
func readPublished(path string) (publishedFigures, error) {
	all := publishedFigures{}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	names := map[string]string{
		"alloc_pct": "allocated_pct", "frag_amount_pct_of_gpus": "frag_amount_pct", "frag_ratio_pct_of_idle": "frag_ratio_pct",
	}
	for i, row := range rows {
		mark, bad := strconv.Atoi(row[3])
		if i == 0 || bad == nil && !slices.Contains(packing.Marks(), mark) {
			continue
		}
		mean, err := strconv.ParseFloat(row[5], 64)
		if err = errors.Join(bad, err); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, i+1, err)
		}
		list, policy := row[1], strings.ToLower(row[2])
		if all[list] == nil {
			all[list] = map[string]figures{}
		}
		if all[list][policy] == nil {
			all[list][policy] = figures{}
		}
		all[list][policy][fmt.Sprintf("%s_at_%d", names[row[0]], mark)] = hundredths(mean)
	}
	return all, nil
}

func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

// meansOf gives a policy's figures over its seeds, with the standard deviation of
// what is allocated at 100 %.
func meansOf(results []packing.Result) figures {
	sums, squares, n := figures{}, 0.0, float64(len(results))
	for _, r := range results {
		for _, m := range r.Marks {
			allocated := 100 * float64(m.Allocated) / float64(r.Capacity)
			sums[fmt.Sprintf("allocated_pct_at_%d", m.ArrivedPct)] += allocated
			sums[fmt.Sprintf("frag_amount_pct_at_%d", m.ArrivedPct)] += 100 * float64(m.Fragment) / float64(r.Capacity)
			sums[fmt.Sprintf("frag_ratio_pct_at_%d", m.ArrivedPct)] += 100 * float64(m.Fragment) / float64(max(1, m.Idle))
			if m.ArrivedPct == 100 {
				squares += allocated * allocated
			}
		}
	}
	mean := sums["allocated_pct_at_100"] / n
	for name := range sums {
		sums[name] = hundredths(sums[name] / n)
	}
	if n > 1 {
		sums["allocated_sd_at_100"] = hundredths(math.Sqrt(max(0, (squares-n*mean*mean)/(n-1))))
	}
	sums["seeds"] = n
	return sums
}

// report prints list → policy → figures, and the published ones beside.
func (c *simPackingCommand) report(t *terminal, lists []string, results []packing.Result, published publishedFigures) error {
	answer := map[string]map[string]any{}
	for _, list := range lists {
		answer[list] = map[string]any{"published": published[list]}
		if published[list] == nil {
			delete(answer[list], "published")
		}
		for _, p := range c.Policies {
			answer[list][p] = meansOf(results[:c.Seeds])
			results = results[c.Seeds:]
		}
	}
	if c.SVG != "" {
		if err := os.WriteFile(c.SVG, []byte(packingPicture(lists, answer, published, c.Seeds)), 0o644); err != nil {
			return err
		}
	}
	return t.print(answer, func(p *page) {
		p.line("LIST\tPOLICY\tAT 90 %%\tAT 100 %%\tAT 130 %%\tPUBLISHED AT 100 %%\tFRAGMENT AT 100 %%")
		for _, list := range lists {
			for _, name := range c.Policies {
				f := answer[list][name].(figures)
				was := "-"
				if old := published[list][name]; old != nil {
					was = fmt.Sprintf("%.2f", old["allocated_pct_at_100"])
				}
				p.line("%s\t%s\t%.2f\t%.2f\t%.2f\t%s\t%.2f", list, name, f["allocated_pct_at_90"],
					f["allocated_pct_at_100"], f["allocated_pct_at_130"], was, f["frag_amount_pct_at_100"])
			}
		}
		p.line("\nGPU allocated in %% of the cluster's, means of %d runs, when jobs had asked for 90, 100 and 130 %% of it.", c.Seeds)
	})
}
