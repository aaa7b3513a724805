package embedpg

import "syscall"

// sysProcAttr makes the server leave with us: the kernel sends SIGINT (a fast
// shutdown) to the child when the thread that started it ends, which is why the
// starting goroutine stays locked to its thread.
func sysProcAttr(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return attr
}
