package feedtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/flusso/flusso-kafka/feeds"
)

// folder is a bucket that can be broken and mended while processes use it.
type folder struct {
	dir, of string // of: the feed's folder in it
	how     string // it is broken; empty for not
	in      []string
}

// The ways to break a folder. Root may write where nobody may: for root a
// folder that is read-only is sound.
const (
	away     = "away"
	readOnly = "read-only"
	inTheWay = "files in the way"
)

func (f *Feed) bucket() *folder {
	return &folder{dir: f.folder, of: filepath.Join(f.folder, f.Name+"-"+f.settings.ID)}
}

// fail breaks the folder; streams are those of which nothing is there yet.
func (b *folder) fail(t *testing.T, how string, streams ...uint64) {
	t.Helper()
	b.mend(t)
	b.how = how
	var err error
	switch how {
	case away: // unmounted: the place where it was is empty
		err = errors.Join(os.Rename(b.dir, b.dir+"-away"), os.Mkdir(b.dir, 0o700))
	case readOnly:
		err = b.mode(0o500)
	case inTheWay: // of the folders that are made for the streams
		for _, stream := range streams {
			name := filepath.Join(b.of, fmt.Sprintf("%012d", stream))
			f, open := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(open, fs.ErrExist) {
				continue
			}
			b.in = append(b.in, name)
			err = errors.Join(err, open, f.Close())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mode changes what may be done to folders that are there.
func (b *folder) mode(m fs.FileMode) error {
	return filepath.WalkDir(b.of, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // renamed into its place, or cleared away, meanwhile
		case err == nil && d.IsDir():
			err = os.Chmod(path, m)
		}
		return err
	})
}

// mend makes the folder sound.
func (b *folder) mend(t *testing.T) {
	t.Helper()
	var err error
	switch b.how {
	case away:
		// Nothing may have been written in its place.
		err = errors.Join(os.Remove(b.dir), os.Rename(b.dir+"-away", b.dir))
	case readOnly:
		err = b.mode(0o700)
	case inTheWay:
		for _, name := range b.in {
			err = errors.Join(err, os.Remove(name))
		}
		b.in = nil
	}
	if err != nil {
		t.Fatalf("mend the folder, which was broken (%s): %v", b.how, err)
	}
	b.how = ""
}

// unreadable: what may be said of commits while the folder is away.
func unreadable(err error) bool {
	var marker *feeds.MarkerError
	return errors.As(err, &marker) || errors.Is(err, fs.ErrNotExist)
}
