// Package staging is folders for files on their way elsewhere, which disappear
// with the process that made them: at its end, or, where it was killed, when the
// next one makes a folder in the same place.
//
// The type to know is [Folder]. A folder is locked while its process lives; the
// kernel releases the lock with the process, however it ends, and never before.
// On Windows nothing is locked, and what a process leaves that was killed stays.
package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A folder gets its name when it is locked, so that what bears it and is not
// locked was left by the dead.
const (
	prefix   = "flusso-staging-"
	unlocked = "flusso-unlocked-"
	lockName = "lock"
	// lostAfter is when a folder that never got its name is nobody's any more.
	lostAfter = 24 * time.Hour
)

// Folder is a folder of this process.
type Folder struct {
	Path string
	lock *os.File
}

// live are the folders of this process: a lock file that nobody refers to would
// be closed, and with it the lock be gone.
var live sync.Map

// Make makes a folder in root, the system's folder for temporary files when
// empty. What processes that are dead left there goes first, as far as this one
// may. purpose is for whoever looks at root.
func Make(root, purpose string) (_ *Folder, err error) {
	if root == "" {
		root = os.TempDir()
	}
	if !locks {
		dir, err := os.MkdirTemp(root, prefix+purpose+"-")
		if err != nil {
			return nil, fmt.Errorf("make a staging folder: %w", err)
		}
		return &Folder{Path: dir}, nil
	}
	sweep(root)
	dir, err := os.MkdirTemp(root, unlocked+purpose+"-")
	if err != nil {
		return nil, fmt.Errorf("make a staging folder: %w", err)
	}
	f := &Folder{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make a staging folder in %s: %w", root, err), f.unlock(), os.RemoveAll(dir))
		}
	}()
	if f.lock, err = os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err = lock(f.lock); err != nil {
		return nil, err
	}
	f.Path = filepath.Join(root, prefix+strings.TrimPrefix(filepath.Base(dir), unlocked))
	if err = os.Rename(dir, f.Path); err != nil {
		return nil, err
	}
	live.Store(f, nil)
	return f, nil
}

// Remove removes the folder and what is in it.
func (f *Folder) Remove() error { return errors.Join(os.RemoveAll(f.Path), f.unlock()) }

func (f *Folder) unlock() error {
	live.Delete(f)
	if f.lock == nil {
		return nil
	}
	return f.lock.Close()
}

// sweep removes the folders of the dead. What it may not look at or remove
// belongs to another user, who will.
func sweep(root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		switch {
		case !e.IsDir(): // nor a link to a folder
		case strings.HasPrefix(e.Name(), prefix):
			if dead(path) {
				_ = os.RemoveAll(path)
			}
		case strings.HasPrefix(e.Name(), unlocked):
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > lostAfter {
				_ = os.RemoveAll(path)
			}
		}
	}
}

// dead reports whether nobody holds the lock of a folder.
func dead(path string) bool {
	name := filepath.Join(path, lockName)
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true // somebody died removing it, or is about to have removed it
	}
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	err = lock(f)
	return errors.Join(err, f.Close()) == nil
}
