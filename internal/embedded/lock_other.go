//go:build !unix

package embedded

import "errors"

type dirLock struct{}

func lockDir(dir string) (*dirLock, error) {
	return nil, &DirError{dir, errors.New("directories cannot be locked on this operating system")}
}

func (*dirLock) release() error { return nil }
