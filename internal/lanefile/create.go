package lanefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Largest bounds what [Read] takes into memory.
const Largest = 2 << 30

// Create writes a saved item to a file that must not exist, and returns when
// both the file and its name are durable. On an error there is no file, but for
// one that was there before.
func Create(path string, s *Saved) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already, and is never overwritten: name another file: %w", path, err)
	}
	if err != nil {
		return fmt.Errorf("create the file for the skipped item: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("save the skipped item: %w", err), os.Remove(path))
		}
	}()
	err = errors.Join(Write(f, s), f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// Remove undoes [Create], durably.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the file of an item that was not skipped: %w", err)
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the names in a folder durable. Windows does so by itself,
// and knows no such call.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read reads a file that [Create] wrote.
func Read(path string) (*Saved, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the file of a skipped item: %w", err)
	}
	if info.Size() > Largest || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, &Error{Reason: "no regular file of at most 2 GiB"})
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the file of a skipped item: %w", err)
	}
	s, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
