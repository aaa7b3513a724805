package embedpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the system user PostgreSQL runs as when we are root, which
// PostgreSQL itself refuses to be.
type account struct {
	name     string
	uid, gid uint32
}

// runAs gives the account for the server: nil (ourselves) unless we are root.
func runAs() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root and this machine has neither a user postgres nor nobody: run as an ordinary user")
}

// own gives everything under dir to the account.
func (as *account) own(dir string) error {
	if as == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(as.uid), int(as.gid))
	})
}

// mayEnter checks that the account can reach dir, whose last element is its own.
func (as *account) mayEnter(dir string) error {
	if as == nil {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return fmt.Errorf("look at %s: %w", parent, err)
		}
		mine := false
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			mine = stat.Uid == as.uid && info.Mode().Perm()&0o100 != 0
		}
		if !mine && info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("PostgreSQL runs as user %s when started by root, and %s may not enter %s:"+
				" choose a data folder such as /var/lib/tranche", as.name, as.name, parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}
