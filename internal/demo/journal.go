package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// journal is an append-only file of JSON lines: all the durability that the
// demo's database and sinks need. What append returned from is on disk. A
// line cut off by a crash was never acknowledged and is dropped at the next
// open.
type journal struct {
	path string
	file *os.File
	size int64
}

// openJournal opens or creates the file at path and calls each with every
// whole line of it, in order.
func openJournal(path string, each func(line []byte) error) (*journal, error) {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal{path: path, file: f}
	if err := j.replay(each); err != nil {
		return nil, errors.Join(fmt.Errorf("replay journal %s: %w", path, err), f.Close())
	}
	return j, nil
}

func (j *journal) replay(each func([]byte) error) error {
	r := bufio.NewReaderSize(j.file, 1<<20)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // what follows the last newline was cut off
		}
		if err != nil {
			return err
		}
		if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		j.size += int64(len(line))
	}
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	_, err := j.file.Seek(j.size, io.SeekStart)
	return err
}

// append writes the records, one line each, and syncs once.
func (j *journal) append(records ...any) error {
	var buf bytes.Buffer
	if err := encode(&buf, records); err != nil {
		return err
	}
	n, err := j.file.Write(buf.Bytes())
	j.size += int64(n)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("append to journal %s: %w", j.path, err)
	}
	return nil
}

func encode(w io.Writer, records []any) error {
	enc := json.NewEncoder(w)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("encode a journal line: %w", err)
		}
	}
	return nil
}

// rewrite replaces the whole file by the records, or leaves it as it is.
func (j *journal) rewrite(records []any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("rewrite journal %s: %w", j.path, err)
		}
	}()
	f, err := os.Create(j.path + ".new")
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	err = errors.Join(encode(w, records), w.Flush(), f.Sync())
	if err == nil {
		err = os.Rename(f.Name(), j.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(j.path))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	size, err := f.Seek(0, io.SeekEnd)
	old := j.file
	j.file, j.size = f, size
	return errors.Join(err, old.Close())
}

func (j *journal) close() error { return j.file.Close() }

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
