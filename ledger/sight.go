package ledger

import "strings"

// Hidden stands for a group, and for what belongs to it, whose name a reader may
// not see under a closed policy.
const Hidden = "another project"

// Sight is which groups a reader may see. Under an open policy these are all; under
// a closed one those at and below a path where the reader holds a role, and the
// programs above it. Its zero value sees the root alone.
type Sight struct {
	all  bool
	held []string // paths where a role is held
}

// SightOf gives what an actor may see at an instant. Whoever holds a role at the
// root sees all even under a closed policy; a token sees its project alone.
func SightOf(a Actor, closed bool, now Instant) Sight {
	if !closed {
		return Sight{all: true}
	}
	var s Sight
	for _, g := range a.Grants {
		path := g.Path
		switch {
		case g.Until != 0 && now >= g.Until:
			continue
		case a.TokenProject != 0 && Covers(path, a.TokenPath):
			path = a.TokenPath
		case a.TokenProject != 0 && !Covers(a.TokenPath, path):
			continue
		}
		s.held = append(s.held, path)
		s.all = s.all || isRoot(path)
	}
	return s
}

// SightAt gives what may be said to whoever reads in the name of one group, such
// as the command of its job.
func SightAt(path string, closed bool) Sight {
	return Sight{all: !closed, held: []string{path}}
}

// All says that nothing is hidden.
func (s Sight) All() bool { return s.all }

// Sees says whether the group at a path may be named to the reader.
func (s Sight) Sees(path string) bool {
	if s.all || isRoot(path) {
		return true
	}
	for _, held := range s.held {
		if Covers(held, path) || path != "" && Covers(path, held) {
			return true
		}
	}
	return false
}

// Nearest is the deepest group at or above a path that may be named.
func (s Sight) Nearest(path string) string {
	for path != "" && !s.Sees(path) {
		path = path[:max(0, strings.LastIndexByte(path, '/'))]
	}
	return path
}

// isRoot says that a path has no parent.
func isRoot(path string) bool { return strings.LastIndexByte(path, '/') == 0 }
