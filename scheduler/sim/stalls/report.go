package stalls

import "math"

// Policies lists the names of all policies.
func Policies() []string {
	var names []string
	for _, p := range policies() {
		names = append(names, p.name)
	}
	return names
}

// Run plays a scenario under the policy of that name. Whatever is random in it follows
// from the seed, and is the same for every policy. cold begins without the history of
// earlier jobs.
func Run(sc *Scenario, policy string, seed uint64, cold bool) (Result, error) {
	p, err := policyNamed(policy)
	if err != nil {
		return Result{}, err
	}
	return run(sc, &p, sc.draw(seed, hours*3600, cold)), nil
}

// Summary gives mean and standard deviation of every figure over runs.
func Summary(list []Result) (mean, sd Result) {
	fields := func(r *Result) []*float64 {
		return []*float64{&r.StallPct, &r.FShape, &r.FRaw, &r.FFit, &r.FGPU, &r.ProductiveGPUHours, &r.MeanWaitMin, &r.RawFlips, &r.Flips}
	}
	n := float64(len(list))
	m, s := fields(&mean), fields(&sd)
	for k := range m {
		for i := range list {
			*m[k] += *fields(&list[i])[k] / n
		}
		for i := range list {
			d := *fields(&list[i])[k] - *m[k]
			*s[k] += d * d
		}
		if n > 1 {
			*s[k] = math.Sqrt(*s[k] / (n - 1))
		}
	}
	return mean, sd
}
