package view

// Preset is one click that fills the contract fields of the job form.
type Preset struct {
	Key, Name, Help string
	Values          [][2]string // field, value, in the form's order
}

// Presets are the contract's common shapes; Train is the form's default.
func Presets() []Preset {
	return []Preset{
		{"debug", "Debug", "15 min, starts within one cycle when anything may be evicted", contract("15 min", "60 s", "1 h")},
		{"train", "Train", "1 h protected, then goes on while nobody is owed more", contract("1 h", "60 s", "7 days")},
		{"long", "Long", "8 h protected, for work that saves rarely", contract("8 h", "5 min", "7 days")},
		{"free", "Free", "not protected, not charged, stops when a funded job needs the GPUs", contract("0", "15 s", "7 days")},
	}
}

func contract(minimum, grace, maximum string) [][2]string {
	return [][2]string{{"minimum", minimum}, {"grace", grace}, {"maximum", maximum}}
}

// PresetValues gives the form values of a preset, for pages opened with
// ?preset=long; an unknown key gives Train's.
func PresetValues(key string) map[string][]string {
	chosen := Presets()[1]
	for _, p := range Presets() {
		if p.Key == key {
			chosen = p
		}
	}
	out := map[string][]string{"resumable": {"on"}, "at_end": {"free"}, "urgency": {"5"}, "nodes": {"1"}, "gpus": {"1"}}
	for _, v := range chosen.Values {
		out[v[0]] = []string{v[1]}
	}
	return out
}

// attrs hands a preset's values to the script that fills the form.
func (p Preset) attrs() map[string]any {
	out := map[string]any{"data-preset": p.Key}
	for _, v := range p.Values {
		out["data-set-"+v[0]] = v[1]
	}
	return out
}
