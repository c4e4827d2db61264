package feeds

import (
	"errors"
	"iter"
	"os"

	"github.com/flusso/flusso-kafka/internal/pack"
)

// keyIndexer builds the key index of a stream's packs in a folder: some keys in
// memory, sorted runs in files, merged at the end.
type keyIndexer struct {
	dir   string
	newer pack.Newer
	run   *pack.Run // of the pack that is open
	packs uint32    // that were ended
	runs  []string  // files
}

// runBytes is the memory that keys may take before they go to a file: a pack of
// small records has hundreds of thousands.
const runBytes = 16 << 20

func newKeyIndexer(dir string, settings Settings) *keyIndexer {
	k := &keyIndexer{dir: dir, newer: pack.BySequence}
	if settings.Latest == LatestVersion {
		k.newer = pack.ByVersion
	}
	k.run = pack.NewRun(k.newer)
	return k
}

// add notes a row of the open pack.
func (k *keyIndexer) add(row *pack.Row) error {
	k.run.Add(row, k.packs)
	if k.run.Weight() < runBytes {
		return nil
	}
	return k.spill()
}

// endPack begins another pack.
func (k *keyIndexer) endPack() error {
	k.packs++
	return k.spill()
}

// spill writes the keys in memory to a file.
func (k *keyIndexer) spill() error {
	if k.run.Len() == 0 {
		return nil
	}
	run := k.run
	k.run = pack.NewRun(k.newer)
	return k.write(func(w *pack.IndexWriter) error { return pack.Merge(w, k.newer, run.Sorted()) })
}

// merged returns the file of the whole index, nil for one without keys. The
// caller closes it.
func (k *keyIndexer) merged() (*os.File, error) {
	if len(k.runs) == 0 {
		return nil, nil //nolint:nilnil // no keys, no index
	}
	for len(k.runs) > 1 {
		n := min(len(k.runs), pack.MaxMerge)
		some := k.runs[:n]
		k.runs = k.runs[n:]
		if err := k.merge(some); err != nil {
			return nil, err
		}
	}
	return os.Open(k.runs[0])
}

// merge replaces runs by one, behind the others: which of two records of a key
// is the newest does not depend on the order of runs.
func (k *keyIndexer) merge(names []string) (err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	return k.write(func(w *pack.IndexWriter) error {
		runs := make([]iter.Seq2[*pack.Entry, error], 0, len(names))
		for _, name := range names {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			files = append(files, f)
			info, err := f.Stat()
			if err != nil {
				return err
			}
			x, err := pack.OpenIndex(f, info.Size())
			if err != nil {
				return err
			}
			runs = append(runs, x.All())
		}
		return pack.Merge(w, k.newer, runs...)
	})
}

// write adds a run, an index file in the folder.
func (k *keyIndexer) write(fill func(*pack.IndexWriter) error) error {
	f, err := os.CreateTemp(k.dir, "keys-")
	if err != nil {
		return err
	}
	w := pack.NewIndexWriter(f)
	if err = fill(w); err == nil {
		err = w.Close()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		k.runs = append(k.runs, f.Name())
	}
	return err
}
