package scheduler

// Needs says what a job waits for of another: Slurm's afterok and afterany.
type Needs string

// Kinds of dependencies.
const (
	NeedsOK  Needs = "ok"  // that it ended well
	NeedsAny Needs = "any" // that it ended
)

// Readiness of a job with dependencies.
type Readiness int8

// A job is Ready when all it waits for has come, Never when something of it cannot
// come any more.
const (
	Ready Readiness = iota
	Waits
	Never
)

// Awaited is one dependency with what has become of the other job.
type Awaited struct {
	Needs  Needs
	Over   bool
	Result Result // once over
}

// Depends says whether a job with these dependencies may be queued.
func Depends(on []Awaited) Readiness {
	out := Ready
	for _, a := range on {
		switch {
		case a.Over && a.Needs == NeedsOK && a.Result != ResultOK:
			return Never
		case !a.Over:
			out = Waits
		}
	}
	return out
}
