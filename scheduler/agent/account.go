package agent

import (
	"fmt"
	"os/user"
	"strconv"
)

// account is the local user a command runs as. Switch is false when the agent
// is an ordinary user itself: then everything runs as the agent.
type account struct {
	Switch bool   `json:"switch"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Groups []int  `json:"groups,omitempty"`
	Name   string `json:"name"`
	Home   string `json:"home"`
}

// accountFor maps a sign-in name to a local account through users ("*" stands
// for everybody else). An agent that runs as root (uid 0) never runs a command
// as root: without a mapping, or with one to root, it refuses.
func accountFor(users map[string]string, signIn string, uid int) (account, error) {
	if uid != 0 {
		return ownAccount(uid), nil
	}
	local, ok := users[signIn]
	if !ok {
		local, ok = users["*"]
	}
	if !ok {
		return account{}, fmt.Errorf("this node runs as root and has no local user for %q; name one with --user-map", signIn)
	}
	u, err := user.Lookup(local)
	if err != nil {
		return account{}, fmt.Errorf("local user %q of the user map: %w", local, err)
	}
	a := account{Switch: true, Name: u.Username, Home: u.HomeDir}
	if a.UID, err = strconv.Atoi(u.Uid); err != nil {
		return account{}, fmt.Errorf("local user %q has no numeric id: %w", local, err)
	}
	if a.GID, err = strconv.Atoi(u.Gid); err != nil {
		return account{}, fmt.Errorf("local user %q has no numeric group: %w", local, err)
	}
	if a.UID == 0 {
		return account{}, fmt.Errorf("the user map sends %q to root; no command runs as root", signIn)
	}
	a.Groups = groupsOf(u)
	return a, nil
}

// groupsOf gives a user's supplementary groups; what cannot be read is left out,
// which takes rights away and never gives any.
func groupsOf(u *user.User) []int {
	ids, err := u.GroupIds()
	if err != nil {
		return nil
	}
	var out []int
	for _, id := range ids {
		if n, err := strconv.Atoi(id); err == nil {
			out = append(out, n)
		}
	}
	return out
}

func ownAccount(uid int) account {
	a := account{UID: uid, Name: strconv.Itoa(uid), Home: "/"}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		a.Name, a.Home = u.Username, u.HomeDir
	}
	return a
}
