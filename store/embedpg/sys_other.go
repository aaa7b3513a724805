//go:build !linux

package embedpg

import "syscall"

// sysProcAttr has no parent-death signal here: a server left behind by a killed
// program is stopped by the next start, which holds the folder's lock.
func sysProcAttr(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return attr
}
