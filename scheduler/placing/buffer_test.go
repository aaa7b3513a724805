package placing

import "testing"

// A class that always uses the same part knows it without doubt; one that swings
// knows how far.
func TestClassLearns(t *testing.T) {
	var c Class
	for range EnoughSeen {
		if c.Known() {
			t.Errorf("known after %d", c.Seen)
		}
		c = c.Learn(600_000)
	}
	if !c.Known() || c.Mean != 600_000 || c.Deviation() != 0 {
		t.Errorf("steady: %+v", c)
	}
	var few Class
	for _, ratio := range []int64{400_000, 500_000, 600_000, 700_000, 800_000} {
		few = few.Learn(ratio)
	}
	if few.Mean != 600_000 || few.Var < 19_990 || few.Var > 20_000 { // as of all five alike
		t.Errorf("five jobs: %+v", few)
	}
	for i := range int64(400) {
		c = c.Learn(500_000 + i%2*200_000)
	}
	if c.Mean < 580_000 || c.Mean > 620_000 || c.Deviation() < 90_000 || c.Deviation() > 110_000 {
		t.Errorf("swinging by a tenth: %+v, deviation %d", c, c.Deviation())
	}
}

// A spread is the mean of what jobs have shown, the first ten alike.
func TestSpreadLearns(t *testing.T) {
	var s Spread
	for i := range EnoughSeen {
		if s.Known() {
			t.Errorf("known after %d", s.Seen)
		}
		s = s.Learn(int64(i) * 20_000)
	}
	if !s.Known() || s.Var != 40_000 || s.Deviation() != 200_000 {
		t.Errorf("%+v, deviation %d", s, s.Deviation())
	}
}

// The forecast is never below what is in use, and above it for who swings.
func TestRunningForecast(t *testing.T) {
	var r Running
	for range 50 {
		r = r.Step(20_000)
	}
	if got := r.Next(20_000); got != 20_000 {
		t.Errorf("steady: %d", got)
	}
	if got := r.Next(50_000); got != 50_000 {
		t.Errorf("below what is in use: %d", got)
	}
	for i := range int64(200) {
		r = r.Step(10_000 + i%2*20_000)
	}
	if got := r.Next(10_000); got < 35_000 || got > 45_000 {
		t.Errorf("swinging between 10,000 and 30,000: %d", got)
	}
}
