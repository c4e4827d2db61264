//go:build unix

package staging

import (
	"os"
	"syscall"
)

// locks is whether folders can be told from those of the dead here.
const locks = true

// lock locks a file until it is closed, or fails where it is locked.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
