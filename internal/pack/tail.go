package pack

import (
	"io"
	"sync"
)

// tailBytes is how much of the end of a file is read at once: its footer, and
// mostly the indexes of its pages before it. Each read is a request to a bucket.
const tailBytes = 32 << 10

// tailed reads the end of a file once.
type tailed struct {
	io.ReaderAt

	size int64
	once sync.Once
	tail []byte
	err  error
}

// ReadAt implements [io.ReaderAt].
func (t *tailed) ReadAt(p []byte, off int64) (int, error) {
	from := max(0, t.size-tailBytes)
	if off < from || off+int64(len(p)) > t.size {
		return t.ReaderAt.ReadAt(p, off)
	}
	t.once.Do(func() {
		t.tail = make([]byte, t.size-from)
		if n, err := t.ReaderAt.ReadAt(t.tail, from); n < len(t.tail) {
			t.tail, t.err = t.tail[:n], err
		}
	})
	if off-from >= int64(len(t.tail)) {
		return 0, t.err
	}
	n := copy(p, t.tail[off-from:])
	if n < len(p) {
		return n, t.err
	}
	return n, nil
}
