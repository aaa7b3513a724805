// Package packing plays the packing comparison of the FGD paper: the jobs of a
// list arrive one by one on an empty cluster until they asked for more than it
// has, none ever ends, and what is compared is how much GPU each policy could
// give. It is pure: files are read and runs are spread over processors elsewhere.
package packing

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tranche/scheduler/placing"
)

// Pod is one job of a list.
type Pod struct {
	Name string
	placing.Ask
}

// most bounds every number of a list, so that sums stay far from overflow.
const most = 1 << 40

// ReadNodes reads a node list with the columns sn, cpu_milli, memory_mib, gpu and
// model. Nodes are sorted by name.
func ReadNodes(r io.Reader) ([]placing.Node, error) {
	rows, err := readTable(r, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, nil)
	if err != nil {
		return nil, err
	}
	var nodes []placing.Node
	for _, row := range rows {
		n, err := row.numbers(1, 2, 3)
		if err != nil {
			return nil, err
		}
		if n[2] > 32 {
			return nil, row.wrong("no node has more than 32 GPUs")
		}
		capacity := placing.Vector{placing.CPU: n[0], placing.RAM: n[1], placing.SM: n[2] * placing.WholeGPU}
		nodes = append(nodes, placing.NewNode(row.fields[0], row.fields[4], capacity, int(n[2])))
	}
	slices.SortStableFunc(nodes, func(a, b placing.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

// ReadPods reads a job list with the columns name, cpu_milli, memory_mib,
// num_gpu and gpu_milli, and gpu_spec where there is one. Pods are sorted by name.
func ReadPods(r io.Reader) ([]Pod, error) {
	rows, err := readTable(r, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, []string{"gpu_spec"})
	if err != nil {
		return nil, err
	}
	var pods []Pod
	for _, row := range rows {
		n, err := row.numbers(1, 2, 3, 4)
		if err != nil {
			return nil, err
		}
		count, share := n[2], n[3]
		if count > 32 || share > placing.WholeGPU || count > 0 && share == 0 || count > 1 && share != placing.WholeGPU {
			return nil, row.wrong("a job asks for a part of one GPU or for up to 32 whole ones")
		}
		if count == 0 {
			share = 0
		}
		a := placing.Ask{
			Count: int(count), Share: share,
			Demand: placing.Vector{placing.CPU: n[0], placing.RAM: n[1], placing.SM: count * share},
		}
		if spec := row.fields[5]; spec != "" && count > 0 {
			a.Models = strings.Split(spec, "|")
			slices.Sort(a.Models)
		}
		pods = append(pods, Pod{Name: row.fields[0], Ask: a})
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

// row is one line's fields in the order the reader asked for.
type row struct {
	line   int
	fields []string
}

func (r row) wrong(why string) error { return fmt.Errorf("line %d: %s", r.line, why) }

func (r row) numbers(at ...int) ([]int64, error) {
	var all []int64
	for _, i := range at {
		n, err := strconv.ParseInt(r.fields[i], 10, 64)
		if err != nil || n < 0 || n > most {
			return nil, r.wrong(fmt.Sprintf("%q is no amount", r.fields[i]))
		}
		all = append(all, n)
	}
	return all, nil
}

// readTable reads comma-separated text with a header; a column that may be
// missing is empty then.
func readTable(r io.Reader, must, may []string) ([]row, error) {
	in := csv.NewReader(r)
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("the header cannot be read: %w", err)
	}
	var at []int
	for i, name := range slices.Concat(must, may) {
		found := slices.Index(header, name)
		if found < 0 && i < len(must) {
			return nil, fmt.Errorf("line 1: no column %s", name)
		}
		at = append(at, found)
	}
	var rows []row
	for {
		fields, err := in.Read()
		if err == io.EOF {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		one := row{line: line}
		for _, i := range at {
			if i < 0 {
				one.fields = append(one.fields, "")
				continue
			}
			one.fields = append(one.fields, fields[i])
		}
		rows = append(rows, one)
	}
}
