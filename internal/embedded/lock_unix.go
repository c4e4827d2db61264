//go:build unix

package embedded

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockFile holds the lock and the process id of its owner. It is never
// removed: a removed file could be locked by two.
const lockFile = "flusso-lock"

// dirLock is the lock on a directory. The kernel releases it with the process.
type dirLock struct{ f *os.File }

func lockDir(dir string) (*dirLock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, &DirError{dir, err}
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		text, _ := io.ReadAll(f)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return nil, errors.Join(&LockedError{dir, pid}, f.Close())
	}
	if err != nil {
		return nil, errors.Join(&DirError{dir, err}, f.Close())
	}
	l := &dirLock{f}
	if err := l.sign(); err != nil {
		return nil, errors.Join(&DirError{dir, err}, f.Close())
	}
	return l, nil
}

// sign writes our process id.
func (l *dirLock) sign() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func (l *dirLock) release() error { return l.f.Close() }
