package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
)

// playAll spreads the runs over processors; results are in the order of runs.
func playAll[O, R any](ctx context.Context, progress io.Writer, runs []O, workers int, play func(O) (R, error)) ([]R, error) {
	if workers < 1 {
		workers = runtime.NumCPU()
	}
	results, errs := make([]R, len(runs)), make([]error, len(runs))
	bar := newProgress(progress, len(runs))
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(workers, len(runs)) {
		wait.Go(func() {
			for i := range next {
				results[i], errs[i] = play(runs[i])
				bar.step()
			}
		})
	}
	for i := range runs {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wait.Wait()
	bar.end()
	// One reason is enough: runs of a list fail alike.
	return results, cmp.Or(append([]error{ctx.Err()}, errs...)...)
}

// progress draws how far a long command is: a bar on a terminal, elsewhere a line
// at every tenth.
type progress struct {
	sync.Mutex
	out       io.Writer
	bar       bool
	done, all int
}

func newProgress(out io.Writer, all int) *progress {
	file, ok := out.(*os.File)
	if ok {
		info, err := file.Stat()
		ok = err == nil && info.Mode()&fs.ModeCharDevice != 0
	}
	return &progress{out: out, bar: ok, all: all}
}

func (p *progress) step() {
	p.Lock()
	defer p.Unlock()
	p.done++
	switch {
	case p.bar:
		full := 40 * p.done / p.all
		fmt.Fprintf(p.out, "\r[%s%s] %d of %d runs", strings.Repeat("#", full), strings.Repeat(".", 40-full), p.done, p.all)
	case p.done*10/p.all > (p.done-1)*10/p.all:
		fmt.Fprintf(p.out, "%d of %d runs\n", p.done, p.all)
	}
}

func (p *progress) end() {
	if p.bar {
		fmt.Fprintln(p.out)
	}
}
