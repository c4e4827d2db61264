package bucket

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"gocloud.dev/gcerrors"
)

// Error says what could not be done with which object of which bucket, and
// what helps where that is known.
type Error struct {
	Op     string // "write", "read", "list", "delete", "open", "close"
	Bucket string
	Object string // empty for the bucket as a whole
	Advice string // empty for none
	Cause  error
}

func (e *Error) Error() string {
	what := e.Bucket
	if e.Object != "" {
		what = e.Object + " in " + what
	}
	text := fmt.Sprintf("%s %s: %v", e.Op, what, e.Cause)
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// ErrMissing says that there is no such object.
var ErrMissing = errors.New("no such object")

// ErrDiffers says that an object is not what its name or manifest says.
var ErrDiffers = errors.New("its content is not what was written: it was changed, or cut off")

// ErrNoBucket says that the store has no such bucket.
var ErrNoBucket = errors.New("the store has no such bucket")

// ErrCredentials says that the store was not told who asks, or does not believe
// it.
var ErrCredentials = errors.New("no credentials, or none that the store takes")

// failed is the error of a store, with what it means and what helps.
func (b *Bucket) failed(op, object string, err error) error {
	e := &Error{Op: op, Bucket: b.name, Object: object, Cause: err}
	switch {
	case errors.Is(err, ErrNoBucket), noBucket(err):
		if !errors.Is(err, ErrNoBucket) {
			e.Cause = fmt.Errorf("%w: %w", ErrNoBucket, err)
		}
		e.Advice = "create it there, or look whether its name, region and endpoint are right (docs/configuration.md, buckets)"
	case noCredentials(err):
		e.Cause = fmt.Errorf("%w: %w", ErrCredentials, err)
		e.Advice = "give them in the environment, as the store defines it (docs/configuration.md, buckets)"
	case b.dir != "" && object == "" && errors.Is(err, fs.ErrNotExist):
		e.Advice = "put the folder back, or mount it, on the machine where this runs"
	case b.dir != "" && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)):
		e.Advice = "let the user that this runs as read and write the folder"
	case gcerrors.Code(err) == gcerrors.PermissionDenied:
		e.Advice = "let the credentials list the bucket, and read, write and delete its objects (docs/configuration.md, buckets)"
	}
	return e
}

// coded is an error of S3 and the like: the code is that of the answer.
type coded interface{ ErrorCode() string }

func noBucket(err error) bool {
	var c coded
	if errors.As(err, &c) {
		return c.ErrorCode() == "NoSuchBucket"
	}
	text := err.Error()
	return strings.Contains(text, "ContainerNotFound") || strings.Contains(text, "The specified bucket does not exist") // Azure, Google
}

func noCredentials(err error) bool {
	var c coded
	if errors.As(err, &c) {
		switch c.ErrorCode() {
		case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired":
			return true
		}
	}
	// Looking for them the clients say so in words alone: S3, Google, Azure.
	text := err.Error()
	return strings.Contains(text, "get credentials:") || strings.Contains(text, "could not find default credentials") ||
		strings.Contains(text, "AZURE_STORAGE_ACCOUNT")
}
