// Package bucket keeps immutable objects in a bucket: an object is written
// once, under a name that tells its content, and is there whole or not at all.
// So nothing needs compare-and-swap, and any store will do.
//
// The type to know is [Bucket]. Which stores there are is up to the program:
// it imports gocloud.dev's drivers. Folders (file://) are always there, with
// the care that their driver leaves to its users.
package bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // a folder is what a newcomer has
	"gocloud.dev/gcerrors"
)

// Bucket is an open bucket. Its methods may be called concurrently.
type Bucket struct {
	b    *blob.Bucket
	name string // the URL without what may be secret
	dir  string // of a folder; empty for other stores
}

// Open opens a bucket by its URL: file:///var/lib/feeds for a folder, which must
// be there; s3://, gs:// or azblob:// where the program has their drivers, which
// ask no store yet. The caller closes it.
func Open(ctx context.Context, address string) (*Bucket, error) { return open(ctx, address, false) }

// Create is Open, and creates a folder that is not there.
func Create(ctx context.Context, address string) (*Bucket, error) { return open(ctx, address, true) }

func open(ctx context.Context, address string, create bool) (*Bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, &Error{Op: "open", Bucket: "bucket", Cause: fmt.Errorf("its address is no URL: %w", errors.Unwrap(err))}
	}
	b := &Bucket{name: Name(address)}
	if u.Scheme == "file" {
		q := u.Query()
		q.Del("create_dir")
		if create {
			q.Set("create_dir", "1")
		}
		q.Set("no_tmp_dir", "1")  // the temporary folder may be on another device
		q.Set("metadata", "skip") // no files beside the objects
		u.RawQuery = q.Encode()
		b.dir = folder(u)
	}
	if u.Scheme == "s3" {
		q := u.Query()
		// Objects are read back and compared with their SHA-256 here: checksums of
		// the client add nothing, and stores that don't know them are many.
		for _, setting := range []string{"request_checksum_calculation", "response_checksum_validation"} {
			if !q.Has(setting) {
				q.Set(setting, "when_required")
			}
		}
		u.RawQuery = q.Encode()
	}
	if b.b, err = blob.OpenBucket(ctx, u.String()); err != nil {
		return nil, b.failed("open", "", err)
	}
	return b, nil
}

// folder is the path that a file URL names, as its driver reads it.
func folder(u *url.URL) string {
	path := u.Path
	if runtime.GOOS == "windows" {
		path = strings.TrimPrefix(path, "/")
	}
	if u.Host == "." {
		path = "." + path
	}
	return filepath.FromSlash(path)
}

// Name returns an address without what may be secret: user and query.
func Name(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "bucket"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// Close closes the bucket.
func (b *Bucket) Close() error {
	if err := b.b.Close(); err != nil {
		return b.failed("close", "", err)
	}
	return nil
}

// Put writes an object whose content has this hash and size, and returns when
// it is durable and was read back. Where an object with that content is there
// already nothing is written. On an error the object may be there whole, or
// not at all: putting again settles it. content is read from its beginning.
func (b *Bucket) Put(ctx context.Context, object string, content io.ReadSeeker, hash [sha256.Size]byte, size int64) error {
	err := b.Verify(ctx, object, hash, size)
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrMissing) && !errors.Is(err, ErrDiffers) {
		return err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return &Error{Op: "write", Bucket: b.name, Object: object, Cause: err}
	}
	if err := b.write(ctx, object, content); err != nil {
		// A reply that was lost looks the same: what is there decides.
		if verr := b.Verify(ctx, object, hash, size); verr != nil {
			return b.failed("write", object, err)
		}
		return nil
	}
	return b.Verify(ctx, object, hash, size)
}

func (b *Bucket) write(ctx context.Context, object string, content io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var file *os.File
	w, err := b.b.NewWriter(ctx, object, &blob.WriterOptions{
		ContentType:                 "application/octet-stream",
		DisableContentTypeDetection: true,
		BeforeWrite: func(as func(any) bool) error {
			as(&file)
			return nil
		},
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	if err == nil && file != nil {
		err = file.Sync() // the driver never does
	}
	if err != nil {
		cancel() // else Close would publish what there is
		return errors.Join(err, ignoreCancelled(w.Close()))
	}
	if err := w.Close(); err != nil {
		return err
	}
	return b.syncFolders(object)
}

func ignoreCancelled(err error) error {
	if errors.Is(err, context.Canceled) || gcerrors.Code(err) == gcerrors.Canceled {
		return nil
	}
	return err
}

// syncFolders makes the names of an object durable, in a folder.
func (b *Bucket) syncFolders(object string) error {
	if b.dir == "" || runtime.GOOS == "windows" {
		return nil
	}
	for dir := filepath.Dir(filepath.Join(b.dir, filepath.FromSlash(object))); len(dir) >= len(filepath.Clean(b.dir)); dir = filepath.Dir(dir) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), f.Close())
		if err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return nil
}

// Verify reads an object back. It is an [ErrMissing] or [ErrDiffers] where it
// is not what it should be.
func (b *Bucket) Verify(ctx context.Context, object string, hash [sha256.Size]byte, size int64) error {
	return b.Copy(ctx, io.Discard, object, hash, size)
}

// Copy copies an object to w, and returns the errors of Verify: what was copied
// counts only without one.
func (b *Bucket) Copy(ctx context.Context, w io.Writer, object string, hash [sha256.Size]byte, size int64) error {
	r, err := b.b.NewReader(ctx, object, nil)
	if err != nil {
		return b.readError(object, err)
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), r)
	if err = errors.Join(err, r.Close()); err != nil {
		return b.readError(object, err)
	}
	if n != size || [sha256.Size]byte(h.Sum(nil)) != hash {
		return &Error{Op: "read", Bucket: b.name, Object: object, Cause: fmt.Errorf("%w (%d bytes, want %d with SHA-256 %s)", ErrDiffers, n, size, hex.EncodeToString(hash[:]))}
	}
	return nil
}

func (b *Bucket) readError(object string, err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound && !noBucket(err) {
		err = errors.Join(ErrMissing, err)
	}
	return b.failed("read", object, err)
}

// Read returns the content of a small object.
func (b *Bucket) Read(ctx context.Context, object string, limit int64) ([]byte, error) {
	r, err := b.b.NewReader(ctx, object, nil)
	if err != nil {
		return nil, b.readError(object, err)
	}
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, b.readError(object, err)
	}
	if int64(len(content)) > limit {
		return nil, &Error{Op: "read", Bucket: b.name, Object: object, Cause: fmt.Errorf("it is larger than %d bytes", limit)}
	}
	return content, nil
}

// At returns random access to an object of that size, by ranged reads.
func (b *Bucket) At(ctx context.Context, object string) io.ReaderAt {
	return &ranges{ctx: ctx, bucket: b, object: object}
}

// ranges reads parts of an object.
type ranges struct {
	ctx    context.Context //nolint:containedctx // io.ReaderAt takes none
	bucket *Bucket
	object string
}

// ReadAt implements [io.ReaderAt].
func (r *ranges) ReadAt(p []byte, off int64) (int, error) {
	part, err := r.bucket.b.NewRangeReader(r.ctx, r.object, off, int64(len(p)), nil)
	if err != nil {
		return 0, r.bucket.readError(r.object, err)
	}
	n, err := io.ReadFull(part, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	if cerr := part.Close(); err == nil && cerr != nil {
		err = cerr
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.bucket.readError(r.object, err)
	}
	return n, err
}

// List iterates over the names of the objects below a prefix.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		objects := b.b.List(&blob.ListOptions{Prefix: prefix})
		for {
			o, err := objects.Next(ctx)
			if err == nil { // a folder is listed whatever became of the context
				err = ctx.Err()
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield("", b.failed("list", prefix, err))
				return
			}
			if !o.IsDir && !yield(o.Key, nil) {
				return
			}
		}
	}
}

// Accessible asks the store for the bucket itself: a missing bucket and a missing
// object look the same in some stores. It is an [ErrNoBucket] where there is none.
func (b *Bucket) Accessible(ctx context.Context) error {
	there, err := b.b.IsAccessible(ctx)
	if err == nil && !there {
		err = ErrNoBucket
	}
	if err != nil {
		return b.failed("list", "", err)
	}
	return nil
}

// Delete deletes an object; one that is not there is fine.
func (b *Bucket) Delete(ctx context.Context, object string) error {
	if err := b.b.Delete(ctx, object); err != nil && (gcerrors.Code(err) != gcerrors.NotFound || noBucket(err)) {
		return b.failed("delete", object, err)
	}
	return nil
}

// RemoveFolders removes the folders below a prefix, which ends with a slash,
// that hold nothing, where the bucket is a folder: a store has no folders. What
// can't be removed stays: it does no harm.
func (b *Bucket) RemoveFolders(prefix string) {
	if b.dir == "" {
		return
	}
	var folders []string
	_ = filepath.WalkDir(filepath.Join(b.dir, filepath.FromSlash(prefix)), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			folders = append(folders, path)
		}
		return nil // what can't be looked at stays
	})
	for _, path := range slices.Backward(folders) { // what is within a folder comes behind it
		_ = os.Remove(path) // never one that holds something
	}
}
